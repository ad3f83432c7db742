;; The name of a dependency is longer than the memory.
(data (i32.const 4480) "\00\40\00\00\ff\ff\ff\7f")
(func $poll (type $poll) i32.const 4352)
