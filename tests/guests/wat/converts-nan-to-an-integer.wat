;; Converts NaN to an integer.
(func $poll (type $poll) (i32.trunc_f64_s (f64.const nan)))
