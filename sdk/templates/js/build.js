// Builds {{kind}}.wasm from plugin.js (or plugin.ts) and its imports, including npm packages.

import { componentize } from "@bytecodealliance/componentize-js";
import { originalPositionFor, TraceMap } from "@jridgewell/trace-mapping";
import { build } from "esbuild";
import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { basename, relative } from "node:path";

process.chdir(import.meta.dirname);
const entry = existsSync("plugin.ts") ? "plugin.ts" : "plugin.js";
const { outputFiles } = await build({
  entryPoints: [entry], outfile: "bundle.js", bundle: true, write: false, format: "esm", target: "es2022",
  external: ["polliwog:*"], sourcemap: "external", logLevel: "info",
});
const file = (ending) => outputFiles.find(({ path }) => path.endsWith(ending)).text;

// The component is built from one bundled module. This table maps its lines to source lines, for error messages.
const bundle = file("bundle.js");
const map = new TraceMap(file(".map"));
const table = bundle.split("\n").map((_, line) => {
  const { source, line: original } = originalPositionFor(map, { line: line + 1, column: 999, bias: 1 });
  return source ? `${relative(".", source) || basename(source)}:${original}` : "";
});
const { component } = await componentize(`globalThis.polliwogLines = ${JSON.stringify(table)};\n${bundle}`, {
  sourceName: "bundle.js",
  witPath: `${import.meta.dirname}/wit`,
  worldName: "plugin",
  // All requests go through polliwog:plugin/http.
  disableFeatures: ["http", "fetch-event"],
});
await writeFile("{{kind}}.wasm", component);
console.log(`{{kind}}.wasm: ${(component.length / 1e6).toFixed(1)} MB`);
