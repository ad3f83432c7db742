// Makes {{kind}}.wasm of plugin.js and what it imports.

import { componentize } from "@bytecodealliance/componentize-js";
import { readFile, writeFile } from "node:fs/promises";

const read = (file) => readFile(new URL(file, import.meta.url), "utf8");

// One module: the component has no other files.
const plugin = (await read("plugin.js")).replace(/^import\s*\{[^}]*\}\s*from\s*["']\.\/polliwog\.js["'];?/m, "");
const helpers = (await read("polliwog.js")).replace(/^export /gm, "");

const { component } = await componentize(`${helpers}\n${plugin}`, {
  sourceName: "plugin.js",
  witPath: new URL("wit", import.meta.url).pathname,
  worldName: "plugin",
  // A plugin has neither clock nor chance nor a way out of its own: what it needs, the host gives it.
  disableFeatures: ["random", "clocks", "http", "stdio", "fetch-event"],
});
await writeFile(new URL("{{kind}}.wasm", import.meta.url), component);
console.log(`{{kind}}.wasm: ${(component.length / 1e6).toFixed(1)} MB`);
