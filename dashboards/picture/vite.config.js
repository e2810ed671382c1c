import { fileURLToPath } from "node:url";

// A picture needs no bars to scroll with; and that package's default export is lost between CommonJS and modules.
const noScrollbars = { find: /^react-custom-scrollbars-2$/, replacement: fileURLToPath(new URL("no_scrollbars.js", import.meta.url)) };

export default { base: "./", logLevel: "error", resolve: { alias: [noScrollbars] }, build: { target: "esnext", chunkSizeWarningLimit: 10000 } };
