;; Writes a log line with an invalid level.
(import "polliwog:plugin/log@0.1.0" "write" (func $write (param i32 i32 i32)))
(func $poll (type $poll) (call $write (i32.const 77) (i32.const 8192) (i32.const 4)) i32.const 4096)
