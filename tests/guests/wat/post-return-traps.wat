;; The clean-up after a poll traps.
(func $after (param i32) unreachable)
(export "cabi_post_polliwog:plugin/poller@0.1.0#poll" (func $after))
