// Serves the page, opens it once for each picture and takes a screenshot.
//
// PROMETHEUS_URL is where the data are, PICTURES_MINUTES how much of them is shown.
// Arguments: the folder of the dashboards, the one for the pictures, the page's
// bundle, and the names of pictures if not all are wanted.

import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';

import { chromium } from 'playwright-core';

import type { Picture } from './model';
import { pictures } from './pictures';

const prometheus = process.env.PROMETHEUS_URL!;
const minutes = Number(process.env.PICTURES_MINUTES ?? 12);
const [dashboards, out, bundle, ...only] = process.argv.slice(2);
const largest = 150_000; // bytes of a picture

let current: Picture;

const html = '<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="/page.css"><div id="root"></div><script src="/page.js"></script>';

async function serve(request: IncomingMessage, response: ServerResponse) {
  const path = request.url ?? '/';
  if (path.startsWith('/prometheus/')) {
    const answer = await fetch(prometheus + path.slice('/prometheus'.length));
    response.writeHead(answer.status, { 'Content-Type': 'application/json' }).end(await answer.text());
  } else if (path === '/picture.json') {
    response.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify(current));
  } else if (path === '/') {
    response.writeHead(200, { 'Content-Type': 'text/html' }).end(html);
  } else if (path === '/page.js' || path === '/page.css') {
    response.writeHead(200, { 'Content-Type': path.endsWith('js') ? 'text/javascript' : 'text/css' }).end(readFileSync(join(bundle, path)));
  } else {
    const file = publicFile(path);
    if (file === undefined) {
      response.writeHead(404).end();
    } else {
      response.writeHead(200, { 'Content-Type': path.endsWith('.svg') ? 'image/svg+xml' : 'font/woff2' }).end(readFileSync(file));
    }
  }
}

// publicFile is one of those that Grafana's server has beside its pages.
function publicFile(path: string): string | undefined {
  const modules = join(bundle, '../node_modules');
  const icon = /^\/public\/build\/img\/icons\/(\w+\/[\w-]+\.svg)$/.exec(path);
  if (icon) {
    return join(modules, '@grafana/ui/dist/public/img/icons', icon[1]);
  }
  const weight = { '/public/fonts/inter/Inter-Regular.woff2': 400, '/public/fonts/inter/Inter-Medium.woff2': 500 }[path];
  return weight === undefined ? undefined : join(modules, `@fontsource/inter/files/inter-latin-${weight}-normal.woff2`);
}

const server = createServer((request, response) => {
  serve(request, response).catch((error) => response.writeHead(500).end(`${error}`));
});
await new Promise<void>((ready) => server.listen(0, '127.0.0.1', ready));
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-dev-shm-usage'],
});
try {
  mkdirSync(out, { recursive: true });
  const to = Math.floor(Date.now() / 5000) * 5000;
  for (current of pictures(dashboards, to - minutes * 60_000, to)) {
    if (only.length > 0 && !only.includes(current.file)) {
      continue;
    }
    const page = await browser.newPage({ viewport: { width: current.width, height: 900 }, colorScheme: 'dark' });
    const problems: string[] = [];
    page.on('pageerror', (error) => problems.push(`${error.stack}`));
    page.on('console', (message) => {
      if (message.text().startsWith('empty: ')) {
        console.log(`${current.file}: ${message.text()}`);
      } else if (process.env.PICTURES_VERBOSE) {
        console.log(message.text());
      }
    });
    await page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
    await page.waitForFunction(() => window.complete || document.body.dataset.failed, undefined, { timeout: 60_000 });
    const failed = await page.evaluate(() => document.body.dataset.failed);
    if (failed) {
      throw new Error(`${current.file}: ${failed}`);
    }
    const height = await page.locator('#picture').evaluate((e) => e.clientHeight);
    await page.setViewportSize({ width: current.width, height });
    await page.waitForTimeout(1500); // what is measured after the first layout
    if (problems.length > 0) {
      throw new Error(`${current.file}: ${problems.join('\n')}`);
    }
    const session = await page.context().newCDPSession(page);
    let bytes = Buffer.alloc(0);
    for (const quality of [85, 75, 65, 55, 45]) {
      const shot = await session.send('Page.captureScreenshot', { format: 'webp', quality });
      bytes = Buffer.from(shot.data, 'base64');
      if (bytes.length <= largest) {
        break;
      }
    }
    if (process.env.PICTURES_PNG) {
      await page.screenshot({ path: join(out, `${current.file}.png`) });
    }
    writeFileSync(join(out, `${current.file}.webp`), bytes);
    console.log(`${current.file}.webp: ${current.width} x ${height}, ${bytes.length} bytes`);
    if (bytes.length > largest) {
      throw new Error(`${current.file}.webp has more than ${largest} bytes`);
    }
    await page.close();
  }
} finally {
  await browser.close();
  server.close();
}
