;; Calls a function with a different type.
(table $functions funcref (elem $realloc))
(func $poll (type $poll) (call_indirect $functions (type $describe) (i32.const 0)))
