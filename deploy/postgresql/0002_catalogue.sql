-- 0002_catalogue.sql: jobs, their items, the workers that build them, the shards that came of it.
-- What the columns mean: cache/catalogue/catalogue.h and docs/catalogue.md.

SET LOCAL ROLE foldmill_owner;

CREATE TABLE foldmill.job (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name    text NOT NULL UNIQUE,
    options bytea NOT NULL CHECK (octet_length(options) = 32),
    listing bytea CHECK (octet_length(listing) = 32), -- NULL: no list yet (catalogue rebuild)
    begun   timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE foldmill.worker (
    id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name  text NOT NULL UNIQUE,
    cache text NOT NULL,
    begun timestamptz NOT NULL DEFAULT now(),
    seen  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE foldmill.shard (
    job    bigint NOT NULL REFERENCES foldmill.job ON DELETE CASCADE,
    hash   bytea NOT NULL CHECK (octet_length(hash) = 32),
    bytes  bigint NOT NULL CHECK (bytes >= 0),
    n_blob bigint NOT NULL,
    n_note bigint NOT NULL,
    worker bigint NOT NULL REFERENCES foldmill.worker,
    cache  text NOT NULL,
    PRIMARY KEY (job, hash)
);

CREATE TABLE foldmill.item (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job      bigint NOT NULL REFERENCES foldmill.job ON DELETE CASCADE,
    name     text COLLATE "C" NOT NULL,
    source   bytea NOT NULL CHECK (octet_length(source) = 32),
    state    text NOT NULL DEFAULT 'pending'
             CHECK (state IN ('pending', 'leased', 'done', 'quarantined')),
    attempt  bigint NOT NULL DEFAULT 0, -- the fencing token: only grows
    failures bigint NOT NULL DEFAULT 0,
    due      timestamptz NOT NULL DEFAULT 'epoch', -- pending: not before; leased: until
    worker   bigint REFERENCES foldmill.worker,
    shard    bytea,
    n_chain  bigint NOT NULL DEFAULT 0,
    reason   text NOT NULL DEFAULT '',
    UNIQUE (job, name),
    FOREIGN KEY (job, shard) REFERENCES foldmill.shard (job, hash),
    CHECK (state <> 'done' OR shard IS NOT NULL)
);

-- The queue: what can be claimed, in the order in which it is.
CREATE INDEX item_due ON foldmill.item (job, due, id) WHERE state IN ('pending', 'leased');

GRANT SELECT ON foldmill.job, foldmill.worker, foldmill.shard, foldmill.item TO foldmill_reader;
GRANT SELECT, INSERT, UPDATE ON foldmill.job, foldmill.worker TO foldmill_worker;
GRANT SELECT, INSERT ON foldmill.shard TO foldmill_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON foldmill.item TO foldmill_worker;
