// timeout: 120
// sdk.mjs - the official SDKs against the stand-in: what our driver shows against it counts only where these pass.
import { finish } from '../peers/support/cases.mjs';
import { runInterpreter, runSdk } from './support/sdk_cases.mjs';
import { start } from './support/server.mjs';
import { require } from './support/wire.mjs';

async function against(options, run, target) {
  const server = await start(options);
  // 2.x of the code interpreter reads these alone.
  Object.assign(process.env, { E2B_API_KEY: server.key, E2B_API_URL: server.url, E2B_SANDBOX_URL: server.url });
  const opts = { apiKey: server.key, apiUrl: server.url, sandboxUrl: server.url };
  await run({ ...target, opts, server });
  await server.close();
}

await against({}, runSdk, { name: 'e2b 2.51.0', sdk: require('e2b') });
await against({ envdVersion: '0.5.1' }, runSdk, {
  name: 'e2b 2.20.1, envd 0.5.1',
  sdk: require('e2b-2-20'),
  isMultipart: true,
});
await against({ envdVersion: '0.3.5' }, runSdk, { name: 'e2b 2.51.0, envd 0.3.5', sdk: require('e2b'), isMultipart: true });
await against({}, runInterpreter, { name: 'code-interpreter 2.8.0', sdk: require('@e2b/code-interpreter') });
finish();
