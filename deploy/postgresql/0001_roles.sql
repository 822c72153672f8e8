-- 0001_roles.sql: the schema and who may do what in it.
--
-- Three roles that nobody logs in as; people and machines are made members of one:
--   foldmill_owner   owns the schema; foldmill catalogue migrate
--   foldmill_worker  foldmill build --catalogue, merge, catalogue rebuild: reads and changes rows
--   foldmill_reader  foldmill catalogue status: reads rows
-- Roles belong to the whole server, so they may be there from another database. Whoever applies
-- this needs CREATEROLE (or finds the roles made, and is a member of foldmill_owner), and CREATE on
-- the database.

DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['foldmill_owner', 'foldmill_worker', 'foldmill_reader'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
        END IF;
    END LOOP;
    IF NOT pg_has_role(current_user, 'foldmill_owner', 'MEMBER') THEN
        EXECUTE format('GRANT foldmill_owner TO %I', current_user);
    END IF;
END $$;

CREATE SCHEMA foldmill AUTHORIZATION foldmill_owner;
SET LOCAL ROLE foldmill_owner;
GRANT USAGE ON SCHEMA foldmill TO foldmill_worker, foldmill_reader;

CREATE TABLE foldmill.schema_migrations (
    number  integer PRIMARY KEY CHECK (number >= 1),
    name    text NOT NULL,
    sha256  text NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    applied timestamptz NOT NULL DEFAULT now()
);
GRANT SELECT ON foldmill.schema_migrations TO foldmill_worker, foldmill_reader;
