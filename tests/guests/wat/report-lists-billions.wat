;; The report has four billion dependencies.
(data (i32.const 4356) "\00\20\00\00\ff\ff\ff\ff")
(func $poll (type $poll) i32.const 4352)
