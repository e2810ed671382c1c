import { createElement } from "react";

export default ({ children }) => createElement("div", { style: { height: "100%", overflow: "hidden" } }, children);
