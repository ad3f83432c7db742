;; The list of dependencies is outside the memory.
(data (i32.const 4356) "\f0\ff\ff\7f\01\00\00\00")
(func $poll (type $poll) i32.const 4352)
