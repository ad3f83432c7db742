;; Calls a function as what it is not.
(table $functions funcref (elem $realloc))
(func $poll (type $poll) (call_indirect $functions (type $describe) (i32.const 0)))
