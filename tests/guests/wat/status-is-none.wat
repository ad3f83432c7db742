;; The status of its dependency is the ninth of four.
(data (i32.const 4448) "\09")
(func $poll (type $poll) i32.const 4352)
