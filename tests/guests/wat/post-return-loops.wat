;; The clean-up after a poll runs an endless loop.
(func $after (param i32) (loop $again (br $again)))
(export "cabi_post_polliwog:plugin/poller@0.1.0#poll" (func $after))
