/**
 * A worker with one mistake, to show that the conformance kit finds it: node dist/conformance/broken.js MISTAKE
 *
 * The mistake is made by a proxy in the main thread, between this worker and the server.
 */
import { createServer, type IncomingHttpHeaders, request } from "node:http";
import type { AddressInfo } from "node:net";

interface Exchange {
  path: string;
  headers: IncomingHttpHeaders;
  body: string;
}

interface Reply {
  status: number;
  body: string;
}

type Server = (exchange: Exchange) => Promise<Reply>;

const MISTAKES: { [name: string]: (exchange: Exchange, server: Server) => Promise<Reply> } = {
  /** It writes without the fence of its lease. */
  "no-fence": (exchange, server) => {
    const write = exchange.path === "/leases/batch";
    return server({ ...exchange, body: write ? exchange.body.replace(/"fence":\d+,/g, "") : exchange.body });
  },
  /** It takes a write whose answer is lost for done, and never sends it again. */
  "drops-result": (exchange, server) =>
    server(exchange).catch((error: unknown) => {
      if (exchange.path !== "/leases/batch") throw error;
      const { items } = JSON.parse(exchange.body) as { items: { op: string; run: string; seq: number }[] };
      const answers = items.map(({ op, run, seq }) => ({
        ...{ run, seq, answer: "applied", kept: [], settled: [], known: 0, more: false, children: {} },
        status: op === "checkpoint" ? "leased" : "succeeded",
      }));
      return { status: 200, body: JSON.stringify({ items: answers, drain: false }) };
    }),
  /** Its heartbeats pass through the thread in which steps run: a step that blocks it holds them up. */
  "work-thread": (exchange, server) => server(exchange),
};

const mistake = MISTAKES[process.argv[2] ?? ""];
if (mistake === undefined) throw new Error(`name one of: ${Object.keys(MISTAKES).join(", ")}`);
const target = process.env["HOLDFAST_URL"] ?? process.env["HOLDFAST_STORE"] ?? "";

const server: Server = ({ path, headers, body }) =>
  new Promise((resolve, reject) => {
    const { host: _, "content-length": __, connection: ___, ...kept } = headers;
    const sent = request(target + path, { method: "POST", headers: kept }, (answer) => {
      let text = "";
      answer.setEncoding("utf8").on("data", (part: string) => (text += part));
      answer.on("close", () =>
        answer.complete ? resolve({ status: answer.statusCode ?? 0, body: text }) : reject(new Error("cut off")),
      );
    });
    sent.on("error", reject);
    sent.end(body);
  });

const proxy = createServer((incoming, response) => {
  let body = "";
  incoming.setEncoding("utf8").on("data", (part: string) => (body += part));
  incoming.on("end", () => {
    mistake({ path: incoming.url ?? "", headers: incoming.headers, body }, server).then(
      (reply) => response.writeHead(reply.status, { "content-type": "application/json" }).end(reply.body),
      () => incoming.socket.destroy(),
    );
  });
});
proxy.listen(0, "127.0.0.1", () => {
  process.env["HOLDFAST_URL"] = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
  proxy.unref();
  void import("./worker.js");
});
