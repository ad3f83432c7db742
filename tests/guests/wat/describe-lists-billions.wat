;; `describe` returns four billion secrets.
(data (i32.const 1096) "\00\20\00\00\ff\ff\ff\ff")
