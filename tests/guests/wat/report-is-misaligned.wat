;; The pointer to the result is misaligned.
(func $poll (type $poll) i32.const 4097)
