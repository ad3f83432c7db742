;; Its answer lies where no answer may lie.
(func $poll (type $poll) i32.const 4097)
