// Finds the native program in the package of this system.
"use strict";

exports.nativeProgram = () => {
  const name = `@unhang/${process.platform}-${process.arch}`;
  try {
    return require.resolve(`${name}/bin/unhang`);
  } catch {
    throw new Error(
      `the package ${name} is not installed: either there is none for this system, or optional dependencies were left out`,
    );
  }
};
