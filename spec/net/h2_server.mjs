// A server that speaks HTTP/2 and HTTP/1.1 over TLS: `h2_server.mjs SOCKET CERTIFICATES`, with the certificate `good`.
// Writes SOCKET.ports, then SOCKET. The path of a request names its answer.
import { createHash } from "node:crypto";
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import http2 from "node:http2";

const [path, certificates] = process.argv.slice(2);
let connections = 0;
const counts = new Map();
const { NGHTTP2_INTERNAL_ERROR, NGHTTP2_REFUSED_STREAM } = http2.constants;

const whole = (request) => new Promise((resolve) => {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", () => resolve(Buffer.concat(parts)));
  request.on("error", () => {});
});

const answers = {
  async info(request, response) {
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({
      version: request.httpVersion, connections, headers: request.headers, method: request.method,
    }));
  },
  async echo(request, response) {
    const body = await whole(request);
    response.end(`${body.length} ${createHash("sha256").update(body).digest("hex")}`);
  },
  async big(request, response, size) { response.end(Buffer.alloc(Number(size), "x")); },
  // A body that only this request can have, in pieces, under a header that says which.
  async fill(request, response, argument) {
    const [seed, size, pieces] = argument.split("-");
    const body = Buffer.alloc(Number(size), `${seed}.`);
    response.setHeader("x-seed", seed);
    const step = Math.ceil(body.length / Number(pieces)) || 1;
    let at = 0;
    const more = () => {
      response.write(body.subarray(at, at + step));
      at += step;
      if (at < body.length) setTimeout(more, Math.random() * 4); else response.end();
    };
    more();
  },
  async slow(request, response, ms) { setTimeout(() => response.end("slow"), Number(ms)); },
  async hang() {},
  async status(request, response, code) {
    response.statusCode = Number(code);
    response.setHeader("location", "/elsewhere?a=b#c");
    response.end();
  },
  // 200 for who has that key, else 401 at once, without a look at the body.
  async guard(request, response, key) {
    response.statusCode = request.headers["x-api-key"] === key ? 200 : 401;
    response.end("{}");
  },
  async away(request, response, port) {
    response.statusCode = 302;
    response.setHeader("location", `https://localhost:${port}/info`);
    response.end();
  },
  async bare(request, response, code) {
    response.statusCode = Number(code);
    response.end(code === "204" ? undefined : "no JSON");
  },
  async token(request, response) {
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ id: "i1", token: "tok-0123456789abcdef", items: [{ token: "tok-in-a-list-0001" }, { token: null }] }));
  },
  async endless(request, response) {
    response.on("error", () => {});
    const more = () => { while (!response.destroyed && response.write(Buffer.alloc(65536))); };
    response.on("drain", more);
    more();
  },
  async drip(request, response) {
    response.on("error", () => {});
    const timer = setInterval(() => (response.destroyed || response.writableEnded ? clearInterval(timer) : response.write("x")), 10);
    response.on("close", () => clearInterval(timer));
  },
  async heads(request, response, count) {
    for (let i = 0; i < Number(count); i++) response.setHeader(`x-${i}`, "y".repeat(200));
    response.end("x");
  },
  async reset(request, response) { request.stream.close(NGHTTP2_INTERNAL_ERROR); },
  async refuse(request, response) { request.stream.close(NGHTTP2_REFUSED_STREAM); },
  async half(request, response) {
    response.write("hello");
    setTimeout(() => request.stream.close(NGHTTP2_INTERNAL_ERROR), 30);
  },
  async short(request, response) {
    response.setHeader("content-length", "10");
    response.write("hello");
    setTimeout(() => request.stream.destroy(), 30);
  },
  async destroy(request) { request.socket.destroy(); request.stream?.session?.destroy(); },
  async goaway(request, response) {
    response.end("bye");
    request.stream.session.close();
  },
  async count(request, response, name) { response.end(String(counts.get(name) ?? 0)); },
};

const server = http2.createSecureServer({
  allowHTTP1: true, key: readFileSync(`${certificates}/good.key`), cert: readFileSync(`${certificates}/good.pem`),
  settings: { maxHeaderListSize: 1 << 20 }, maxSessionMemory: 1000, maxSendHeaderBlockLength: 1 << 20,
});
server.on("secureConnection", (socket) => {
  connections += 1;
  socket.on("error", () => {});
});
server.on("sessionError", () => {});
server.on("request", (request, response) => {
  const [, name, argument] = request.url.split("/");
  counts.set(name, (counts.get(name) ?? 0) + 1);
  request.stream?.on?.("error", () => {});
  (answers[name] ?? answers.info)(request, response, argument).catch(() => {});
});
server.listen(0, "127.0.0.1", () => {
  writeFileSync(`${path}.ports`, JSON.stringify({ tls: server.address().port }));
  writeFileSync(`${path}.new`, "");
  renameSync(`${path}.new`, path);
});
