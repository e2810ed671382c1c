// Checks Kubernetes objects against the schemas of kubernetes-models.
//
//   node check.mjs FOLDER-OF-NODE_MODULES < objects.json > problems.json
//
// In: an array of objects. Out: for each an array of problems. The package's validators accept keys that they do not know, such as hostPid.
// They look at every key that they do know; so each object is handed over in a proxy that notes what was looked at, and a key that nobody
// looked at is one that the schema does not have.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const modules = process.argv[2];

function watched(value, path, unseen) {
  if (value === null || typeof value !== "object") return value;
  const isList = Array.isArray(value);
  const children = new Map();
  for (const key of Object.keys(value)) {
    const at = `${path}/${key}`;
    if (!isList) unseen.add(at);
    children.set(key, watched(value[key], at, unseen));
  }
  return new Proxy(value, {
    get(target, key) {
      if (!children.has(key)) return target[key];
      unseen.delete(`${path}/${key}`);
      return children.get(key);
    },
  });
}

async function problemsOf(object) {
  const { apiVersion = "", kind = "" } = object;
  const home = apiVersion === "monitoring.coreos.com/v1" ? "@kubernetes-models/prometheus-operator" : "kubernetes-models";
  let model;
  try {
    model = (await import(pathToFileURL(join(modules, home, apiVersion, `${kind}.js`))))[kind];
  } catch (error) {
    return [`${apiVersion} ${kind}: there is no such kind: ${error.message}`];
  }
  const unseen = new Set();
  const problems = [];
  try {
    model.prototype.validate.call(watched(object, "", unseen));
  } catch (error) {
    problems.push(error.message);
  }
  // Below a key that is not known nothing is looked at: the key itself is enough.
  for (const path of unseen) {
    if (![...unseen].some((other) => path.startsWith(`${other}/`))) problems.push(`${path}: no such key`);
  }
  return problems;
}

const problems = [];
for (const object of JSON.parse(readFileSync(0, "utf8"))) problems.push(await problemsOf(object));
console.log(JSON.stringify(problems));
