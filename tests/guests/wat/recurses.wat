;; Recurses endlessly.
(func $deep (param i32) (result i32) (i32.add (local.get 0) (call $deep (i32.add (local.get 0) (i32.const 1)))))
(func $poll (type $poll) (call $deep (i32.const 0)))
