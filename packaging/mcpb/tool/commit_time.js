// Gives everything that is packed the time of the commit (SOURCE_DATE_EPOCH), where mcpb takes the time of the day.
"use strict";

const commitTime = Number(process.env.SOURCE_DATE_EPOCH) * 1000;

globalThis.Date = class extends Date {
  constructor(...given) {
    super(...(given.length === 0 ? [commitTime] : given));
  }
};
