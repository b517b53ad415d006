import { appendFileSync } from "node:fs";

export const note = ({ token, file }) => {
  appendFileSync(file, `${token}\n`);
  return token;
};
