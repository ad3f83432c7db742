;; The name of a dependency is not UTF-8.
(data (i32.const 16384) "\c3\28\a0\a1")
(data (i32.const 4480) "\00\40\00\00\04\00\00\00")
(func $poll (type $poll) i32.const 4352)
