;; Sends four billion requests at once.
(import "polliwog:plugin/http@0.1.0" "fetch-all" (func $all (param i32 i32 i32)))
(func $poll (type $poll) (call $all (i32.const 8192) (i32.const -1) (i32.const 200000)) i32.const 4096)
