;; Makes an integer of a number that is none.
(func $poll (type $poll) (i32.trunc_f64_s (f64.const nan)))
