// Holds dashboards against the types that @grafana/schema declares.   node schema.mjs FILE…
//
// Each panel is held against the type of a panel, its options and custom fields against those of its own type of panel; the rest of the
// file against the type of a dashboard. One line on stdout for each finding; ends with 1 if there is one. Run from the folder that has
// node_modules: imports are resolved from there.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(join(process.cwd(), "package.json"));
const { createGenerator } = require("ts-json-schema-generator");
const Ajv = require("ajv");

const types = join(process.cwd(), "node_modules/@grafana/schema/dist/types/raw");
const ajv = new Ajv({ strict: false });

function validator(path, type) {
  const generator = createGenerator({ path: join(types, path), type, skipTypeCheck: true, expose: "all" });
  return ajv.compile(generator.createSchema(type));
}

const validators = new Map();
function validatorOf(path, type) {
  const key = `${path} ${type}`;
  if (!validators.has(key)) validators.set(key, validator(path, type));
  return validators.get(key);
}

let findings = 0;
function hold(value, validate, where) {
  if (validate(value)) return;
  ++findings;
  const error = validate.errors[0];  // the others are what else it could have been
  const extra = error.params.additionalProperty ?? error.params.allowedValues?.join(", ");
  console.log(`${where}${error.instancePath} ${error.message}${extra ? `: ${extra}` : ""}`);
}

const DASHBOARD = "dashboard/x/types.gen.d.ts";
for (const file of process.argv.slice(2)) {
  const { panels, ...rest } = JSON.parse(readFileSync(file, "utf8"));
  hold(rest, validatorOf(DASHBOARD, "Dashboard"), `${file}: `);
  for (const panel of panels.flatMap((panel) => [panel, ...(panel.panels ?? [])])) {
    const where = `${file}: panel ${panel.id} '${panel.title}': `;
    if (panel.type === "row") {
      hold(panel, validatorOf(DASHBOARD, "RowPanel"), where);
      continue;
    }
    hold(panel, validatorOf(DASHBOARD, "Panel"), where);
    const own = `composable/${panel.type.replace("-", "")}/panelcfg/x/types.gen.d.ts`;
    let declared;
    try {
      declared = readFileSync(join(types, own), "utf8");
    } catch {
      ++findings;
      console.log(`${where}@grafana/schema declares no panel of type '${panel.type}'`);
      continue;
    }
    hold(panel.options, validatorOf(own, "Options"), `${where}options`);
    if (declared.includes("interface FieldConfig")) {
      hold(panel.fieldConfig.defaults.custom ?? {}, validatorOf(own, "FieldConfig"), `${where}custom`);
    }
  }
}
process.exit(findings ? 1 : 0);
