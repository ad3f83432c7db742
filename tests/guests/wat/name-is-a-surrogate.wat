;; The name of a dependency is half of a surrogate pair.
(data (i32.const 16384) "\ed\a0\80")
(data (i32.const 4480) "\00\40\00\00\03\00\00\00")
(func $poll (type $poll) i32.const 4352)
