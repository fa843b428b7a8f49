// How the widgets' files become modules of a page. This text has no imports or exports
// of its own: it stands in front of whatever starts a widget, on the site (host.js) and
// behind a kernel (the module that anywidget runs), where a module's text becomes a Blob
// and `import … from "./parts.js"` would lead nowhere.

/**
 * Load a module and what it imports; each file becomes a module once a page.
 *
 * @param {string} name - of the module, such as "patch_size.js".
 * @param {Object<string, {digest: string, content: string}>} files - the module and all
 *   that it imports as "./name", straight or in turn. A style sheet's module exports its
 *   text, any other file's its bytes; the content of those is deflated, in base64.
 * @returns {Promise<object>} the module.
 */
function linkModule(name, files) {
  const urls = (globalThis[Symbol.for("vit-course.modules")] ??= new Map());
  const unpack = async (text) => {
    const packed = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  };
  const write = (file, content) => {
    if (file.endsWith(".css")) return `export default ${JSON.stringify(content)};`;
    if (!file.endsWith(".js")) return `export default await (${unpack})("${content}");`;
    return content.replace(
      /^(import [^;"]+ from )"\.\/([^"]+)";$/gm,
      (_, start, other) => `${start}"${url(other)}";`,
    );
  };
  const url = (file) => {
    if (!files[file]) throw new Error(`The file ${file} of this widget is missing.`);
    const { digest, content } = files[file];
    if (!urls.has(digest)) {
      const blob = new Blob([write(file, content)], { type: "text/javascript" });
      urls.set(digest, URL.createObjectURL(blob));
    }
    return urls.get(digest);
  };
  return import(url(name));
}
