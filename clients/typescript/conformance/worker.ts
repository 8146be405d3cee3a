/** The worker program that the conformance kit drives: node dist/conformance/worker.js */
import { Worker } from "../src/index.js";
import { define } from "./script.js";

const { HOLDFAST_WORKER: name, HOLDFAST_LEASE_MS: leaseMs = "30000", HOLDFAST_SLOTS: slots = "50" } = process.env;
const worker = new Worker({ leaseMs: Number(leaseMs), slots: Number(slots), ...(name && { name }) });
define(worker);
worker.run().catch((error: Error) => {
  console.error(error.message);
  process.exit(1);
});
