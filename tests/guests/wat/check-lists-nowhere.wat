;; `check-settings` returns a list outside the memory.
(data (i32.const 4096) "\f0\ff\ff\7f\01\00\00\00")
