-- 0003_refused.sql: the state of an item that is not built, "quarantined" in 0002, becomes "refused".
--
-- Rows of jobs begun before are renamed too, so that workers, merges and reports see one word.

SET LOCAL ROLE foldmill_owner;

ALTER TABLE foldmill.item DROP CONSTRAINT item_state_check;
UPDATE foldmill.item SET state = 'refused' WHERE state = 'quarantined';
ALTER TABLE foldmill.item ADD CONSTRAINT item_state_check
    CHECK (state IN ('pending', 'leased', 'done', 'refused'));
