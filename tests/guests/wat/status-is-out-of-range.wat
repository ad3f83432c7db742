;; The status of a dependency is the ninth of four.
(data (i32.const 4512) "\09")
(func $poll (type $poll) i32.const 4352)
