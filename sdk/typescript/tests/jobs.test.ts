/** Functions as jobs of scripts: what they return, throw and do to their process. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { get, type Job, JobFailedError, JobRefusedError, listJobs, state, submit, UnhangError, WaitTimeoutError } from "@unhang/jobs";

import { workplace } from "./support.js";

const LIMIT = 60_000;

const WORK = `
import cluster from "node:cluster";
import { spawn } from "node:child_process";
import { appendFileSync, writeSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import { state } from "@unhang/jobs";

export default () => "the default";
export const add = ({ a, b = 2 }) => a + b;
export const later = async ({ number }) => { await wait(1); return number; };
export const nothing = () => {};
export const rich = () => ({
  date: new Date(0), set: new Set([1]), map: new Map([["key", 1]]), floats: new Float64Array([1, 2.5]), left: undefined, list: [undefined],
});
export const noisy = (_input, job) => {
  process.stdout.write("no end of the line");
  job.progress(0.5, "half");
  console.log("more");
  process.chdir("/");
  writeSync(1, "raw");
  return job.dir.includes(job.id);
};
export const fails = ({ text }) => { throw new TypeError(text + " " + process.env.THE_TOKEN); };
export const throws = () => { throw "a text"; };
export const rejects = async () => { void Promise.reject(new Error("nobody waits for it")); await wait(60_000); };
export const leaves = () => process.exit(0);
export const unsettled = () => new Promise(() => {});
export const whole = () => ({ density: 2.5e20, negative: -1e19, most: 2 ** 53 });
export const half = () => ({ ["half \\ud83d"]: "day report \u{1f600}".slice(0, 12) });
export const badText = () => { throw new Error("half \\ud83d"); };
export const hidden = () => ({ pattern: /x/ });
export const noDate = () => ({ at: new Date("x") });
export const deep = () => { let value = []; for (let i = 0; i < 101; i++) value = [value]; return value; };
export const lines = () => { throw new Error(JSON.stringify(process.env.THE_KEY)); };
export const big = () => ({ a: [1, 10n] });
export const infinite = () => ({ "the rate": 1 / 0 });
export const circular = () => { const object = {}; object.self = object; return object; };
export const forks = async () => {
  cluster.fork();
  const [worker] = Object.values(cluster.workers);
  const code = await new Promise((resolve) => worker.on("exit", resolve));
  appendFileSync("runs", "x");
  return code;
};
export const timers = () => { setInterval(() => {}, 1000); return "done"; };
export const processes = () => { spawn("sleep", ["600"], { stdio: "ignore" }); return "done"; };
export const large = () => "x".repeat(100_000_000);
export const endless = async (_input, job) => {
  job.progress(0.25, "a quarter");
  job.log("begun");
  try {
    await wait(600_000, undefined, { signal: job.signal });
  } catch (error) {
    job.log("cancelled: " + job.signal.aborted);
    throw error;
  }
};
export const usesState = async () => {
  const count = (await state.get("count", 0)) + 1;
  await state.set("count", count);
  return count;
};
export const echo = (input) => input;
export const sums = (_input, job) => {
  for (let done = 0, step = 0; step < 11; step++) { done += 1 / 11; job.progress(done); }
  job.progress(-1);
  job.progress(0 / 0);
  job.progress(Infinity);
  return "done";
};
export const holes = () => ({ rows: [1, , 3] });
export const keys = () => ({ key: { toJSON: (key) => key } });
export const broken = () => ({ a: { b: { toJSON() { throw new Error("no form"); } } } });
export const revoked = () => { const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); return [proxy]; };
export const twins = () => ({ "k\\ud800": 1, "k\\ud801": 2 });
export const secrets = () => {
  const { A_KEY, B_KEY, C_URL, DB_PASS } = process.env;
  const error = new Error([B_KEY, C_URL, "with pass-word-of-it", DB_PASS].join(" "));
  error.name = A_KEY;
  error.long = "q".repeat(9990) + A_KEY;
  throw error;
};
export const long = () => { const error = new Error("x".repeat(1e6)); error.name = "N".repeat(1e6); throw error; };
export const noStack = () => { Error.prepareStackTrace = () => { throw new Error("no stack"); }; throw new Error("the real reason"); };
export const number = 3;
`;

describe("a function as a job", () => {
  const place = workplace();
  const start = (name: string, input: object = {}): Promise<Job> => {
    place().write("work.js", WORK);
    return submit({ module: `${place().folder}/work.js`, export: name, input });
  };
  const result = async (name: string, input: object = {}): Promise<unknown> => (await start(name, input)).wait(LIMIT);
  const failure = async (job: Job): Promise<JobFailedError> => {
    const outcome: unknown = await job.wait(LIMIT).catch((error: unknown) => error);
    assert.ok(outcome instanceof JobFailedError, String(outcome));
    return outcome;
  };

  test("it runs with its arguments", async () => {
    const job = await start("add", { a: 40, b: 2 });
    assert.equal(await job.wait<number>(LIMIT), 42);
    assert.equal(await (await get(job.id)).result(), 42);
    const status = await job.status();
    assert.deepEqual([status.status, status["name"]], ["completed", "add"]);
    assert.deepEqual((await listJobs()).map((record) => record.job_id), [job.id]);
    assert.equal(await result("later", { number: 7 }), 7);
    assert.equal(await result("nothing"), null);
    assert.equal(await result("default"), "the default");
  });

  test("a relative module is relative to the file with the call", async () => {
    place().write("work.js", WORK);
    place().write("script.js", 'import { submit } from "@unhang/jobs";\nexport const job = submit({ module: "./work.js", export: "add", input: { a: 1 } });\n');
    const { job } = (await import(`${place().folder}/script.js`)) as { job: Promise<Job> };
    assert.equal(await (await job).wait(LIMIT), 3);
  });

  test("objects of JavaScript are JSON", async () => {
    const expected = { date: "1970-01-01T00:00:00.000Z", set: [1], map: { key: 1 }, floats: [1, 2.5], list: [null] };
    assert.deepEqual(await result("rich"), expected);
  });

  test("holes are null, and toJSON gets its key", async () => {
    assert.deepEqual(await result("holes"), { rows: [1, null, 3] });
    assert.deepEqual(await result("keys"), { key: "key" });
    assert.deepEqual(await result("echo", { rows: [1, , 3] }), { rows: [1, null, 3] });
  });

  test("a result that names a file is no path to it", async () => {
    const path = place().write("secret.json", "{}");
    const named = { large_result_file: path, bytes: 2 };
    assert.deepEqual(await result("echo", named), named);
  });

  test("a fraction that is no progress loses no work", async () => {
    const job = await start("sums");
    assert.equal(await job.wait(LIMIT), "done");
    const told = (await job.logs()).trim().split("\n").map((line) => (JSON.parse(line) as { progress: number }).progress);
    assert.deepEqual([told.length, ...told.slice(-3)], [13, 1, 0, 1]);
    assert.match(await job.logs("stderr"), /from 0 to 1, not NaN/);
  });

  test("a job of a process with permissions keeps its result", () => {
    const module = place().write("work.js", WORK);
    const script = `import { submit } from "@unhang/jobs";
console.log(await (await submit({ module: ${JSON.stringify(module)}, export: "add", input: { a: 1 } })).wait(${LIMIT}));`;
    const permission = Number(process.versions.node.split(".")[0]) < 22 ? "--experimental-permission" : "--permission";
    const flags = [permission, "--allow-fs-read=*", "--allow-fs-write=*", "--allow-child-process", "--no-warnings"];
    const told = execFileSync(process.execPath, [...flags, place().write("permitted.js", script)], { encoding: "utf8", timeout: LIMIT });
    assert.equal(told.trim(), "3");
  });

  test("words that look like options are none", async () => {
    await assert.rejects(state.set("--help", 1), /--help/);
    await assert.rejects(state.get("-h"), /-h/);
    const module = place().write("dash.js", 'const run = () => 1;\nexport { run as "-dash" };\n');
    assert.equal(await (await submit({ module, export: "-dash" })).wait(LIMIT), 1);
    const named = await submit({ module, export: "-dash", name: "-x" });
    assert.equal((await named.status())["name"], "-x");
    // The folder of the test goes with its end, and the supervisor of a job that starts would write into it.
    await named.wait(LIMIT);
  });

  test("what a function prints does not hide its progress", async () => {
    const job = await start("noisy");
    assert.equal(await job.wait(LIMIT), true);
    assert.equal(await job.logs(), 'no end of the line\n{"progress":0.5,"message":"half"}\nmore\nraw');
  });

  test("an error is told without secrets", async () => {
    process.env["THE_TOKEN"] = "hunter2-hunter2";
    const job = await start("fails", { text: "it is negative" });
    const error = await failure(job);
    delete process.env["THE_TOKEN"];
    assert.equal(error.status, "failed");
    const told = JSON.stringify(error.report) + (await job.logs("stderr"));
    assert.match(told, /TypeError/);
    assert.match(told, /it is negative \[THE_TOKEN\]/);
    assert.match(told, /work\.js/);
    assert.doesNotMatch(told, /hunter2/);
  });

  test("secrets are masked wherever they are: within others, in URLs, in names of errors, and cut", async () => {
    const secrets = { A_KEY: "shared12345", B_KEY: "shared12345-and-more", C_URL: "db://me:pass-word-of-it@host/x", DB_PASS: "opensesame" };
    Object.assign(process.env, secrets);
    const job = await start("secrets");
    const error = await failure(job);
    Object.keys(secrets).forEach((name) => delete process.env[name]);
    const told = JSON.stringify(error.report) + (await job.logs("stderr")) + readFileSync(`${(await job.status()).work_folder}/error.json`, "utf8");
    assert.match(told, /\[A_KEY\]: \[B_KEY\] \[C_URL\] with \[C_URL\] \[DB_PASS\]/);
    assert.doesNotMatch(told, /shared|and-more|pass-word|opensesame/);
    assert.match(told, /qqqq/);
  });

  test("a long error fits into an answer", async () => {
    const { work_folder } = await (async (job) => (await failure(job), job.status()))(await start("long"));
    const error = readFileSync(`${work_folder}/error.json`, "utf8");
    assert.ok(error.length < 20_000, `${error.length} characters`);
  });

  for (const [name, why] of [
    ["throws", /a text/],
    ["rejects", /nobody waits for it/],
    ["leaves", /process\.exit\(0\)/],
    ["unsettled", /nothing can settle/],
    ["big", /the result\.a\[1\] is a bigint/],
    ["infinite", /the result\["the rate"\] is Infinity/],
    ["circular", /contains itself/],
    ["hidden", /the result\.pattern is of the class RegExp/],
    ["noDate", /the result\.at is an invalid date/],
    ["deep", /more than 100 levels/],
    ["badText", /half \ufffd/],
    ["broken", /the result\.a\.b cannot be read: no form/],
    ["revoked", /the result\[0\] cannot be read: .*revoked/],
    ["twins", /two keys of the result are "k\ufffd"/],
    ["noStack", /the real reason/],
    ["number", /exports as something else than a function: number/],
    ["missing", /does not export: missing/],
  ] as const) {
    test(`a job without a result says why: ${name}`, async () => {
      assert.match((await failure(await start(name))).message, why);
    });
  }

  for (const [text, why] of [
    ["throw new Error('no licence');", /no licence/],
    ["export default (", /broken\.js: /],
    ["await new Promise(() => {});", /the module waits for a promise/],
    ["process.exit(0);", /the module called process\.exit\(0\)/],
  ] as const) {
    test(`a module that cannot be imported fails the job: ${text}`, async () => {
      const module = place().write("broken.js", text);
      assert.match((await failure(await submit({ module }))).message, why);
    });
  }

  test("numbers and texts that JSON writes in another way arrive", async () => {
    assert.deepEqual(await result("whole"), { density: 2.5e20, negative: -1e19, most: 2 ** 53 });
    assert.deepEqual(await result("half"), { "half \ufffd": "day report \ufffd" });
    assert.equal(await result("add", { a: 1e20, b: 0 }), 1e20);
    await state.set("number", 1e20);
    assert.equal(await state.get("number"), 1e20);
  });

  test("a secret of several lines is told in no form", async () => {
    process.env["THE_KEY"] = "begin-of-key\nline-of-key\n";
    const job = await start("lines");
    const error = await failure(job);
    delete process.env["THE_KEY"];
    const told = JSON.stringify(error.report) + (await job.logs("stderr"));
    assert.match(told, /THE_KEY/);
    assert.doesNotMatch(told, /line-of-key/);
  });

  test("a handle stays with its job, and waits for any time", async () => {
    const job = await start("add", { a: 1 });
    assert.equal((await get("last")).id, job.id);
    assert.equal((await get(job.id.slice(0, 6))).id, job.id);
    assert.deepEqual([await job.wait(Infinity), await job.wait(30_000.4)], [3, 3]);
    await assert.rejects(job.wait(Number.NaN), RangeError);
    for (const text of ["--help", "", "a b"]) {
      await assert.rejects(get(text), /not the id of a job/);
    }
  });

  test("copies, timers and processes do not keep a job, and it runs once", async () => {
    assert.equal(await result("forks"), 2);
    assert.equal(place().read("runs"), "x");
    assert.equal(await result("timers"), "done");
    assert.equal(await result("processes"), "done");
  });

  test("a result of 100 MB comes back", async () => {
    assert.equal(((await result("large")) as string).length, 100_000_000);
  });

  test("a cancelled job can clean up", async () => {
    const job = await start("endless");
    await assert.rejects(job.wait(1), WaitTimeoutError);
    const end = Date.now() + LIMIT;
    while (!(await job.logs("stderr")).includes("begun")) {
      assert.ok(Date.now() < end, "the function has not begun");
      // Between two looks at a log.
      await sleep(20);
    }
    const status = await job.status();
    assert.deepEqual([status.progress, status["progress_message"]], [0.25, "a quarter"]);
    await assert.rejects(job.result(), /has no result yet/);
    await job.cancel();
    assert.equal((await failure(job)).status, "cancelled");
    assert.match(await job.logs("stderr"), /cancelled: true/);
  });

  test("jobs share the state", async () => {
    assert.deepEqual([await result("usesState"), await result("usesState")], [1, 2]);
    assert.equal(await state.get("count"), 2);
    assert.equal(await state.get("nothing", "none"), "none");
  });

  test("what cannot start is refused", async () => {
    const module = place().write("work.js", WORK);
    await assert.rejects(submit({ module, timeout: "soon" }), JobRefusedError);
    await assert.rejects(submit({ module, input: { a: 1n } }), /the input\.a is a bigint/);
    await assert.rejects(get("aaaaaaaaaaaa"), UnhangError);
    assert.deepEqual(await listJobs(), []);
  });
});
