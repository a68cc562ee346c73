import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

export default defineConfig({
  plugins: [svelte()],
  // Addresses in index.html stay relative, so that a proxy may serve the console below a path.
  base: "./",
  build: {
    outDir: "../src/tradewind/service/static",
    emptyOutDir: true,
    // The Content-Security-Policy forbids data: addresses of scripts and fonts.
    assetsInlineLimit: 0,
    modulePreload: false,
  },
});
