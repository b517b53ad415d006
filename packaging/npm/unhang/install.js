// Puts the native program in the place of the script bin/unhang, so that no Node.js stands between a client and the guard.
//
// Where that fails, the script stays and starts the native program. So nothing here may make the installation fail.
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const { nativeProgram } = require("./native.js");

// Yarn 2 and later start every bin with Node.js, and share packages between projects.
const isYarn = /\byarn\/(?!1\.)/.test(process.env.npm_config_user_agent ?? "");

const replaceScript = () => {
  const native = nativeProgram();
  const script = path.join(__dirname, "bin", "unhang");
  const beside = path.join(__dirname, "bin", `unhang-${process.pid}`);
  try {
    // A hard link takes no room.
    fs.linkSync(native, beside);
  } catch {
    fs.copyFileSync(native, beside);
    fs.chmodSync(beside, 0o755);
  }
  fs.renameSync(beside, script);
  // The rename does nothing if both are the same file already.
  fs.rmSync(beside, { force: true });
};

if (!isYarn) {
  try {
    replaceScript();
  } catch (error) {
    console.error(`unhang: the script stays in the place of the program: ${error.message}`);
  }
}
