// authorization.mjs - an authorization server for the tests, on npm's jose: metadata (RFC 8414), registration (RFC 7591), the
// code flow with PKCE and a resource (RFC 7636, RFC 8707), keys that rotate. It approves everybody at once as `person`.
import { createHash, randomUUID } from 'node:crypto';
import http from 'node:http';

import { exportJWK, generateKeyPair, SignJWT } from 'jose';

async function makeKey(alg) {
  const { publicKey, privateKey } = await generateKeyPair(alg, { extractable: true });
  const kid = randomUUID();
  return { alg, kid, privateKey, jwk: { ...(await exportJWK(publicKey)), kid, alg, use: 'sig' } };
}

const challengeOf = (verifier) => createHash('sha256').update(verifier).digest('base64url');

async function bodyOf(request) {
  const parts = [];
  for await (const part of request) parts.push(part);
  return Buffer.concat(parts).toString();
}

/** Starts one; `scope` is what its tokens have. */
export async function startAuthorization({ alg = 'ES256', scope = 'mcp', person = 'mia' } = {}) {
  const self = { alg, scope, key: await makeKey(alg), asked: [], issued: 0 };
  self.keys = [self.key.jwk];
  const codes = new Map();

  self.token = (audience, claims = {}, key = self.key, header = {}) =>
    new SignJWT({ iss: self.issuer, aud: audience, sub: person, scope: self.scope, ...claims })
      .setProtectedHeader({ alg: key.alg, kid: key.kid, typ: 'at+jwt', ...header })
      .setIssuedAt()
      .setExpirationTime(claims.exp ?? '2m')
      .sign(key.privateKey);

  /** A new key signs from now on; the old one is taken out of the set. */
  self.rotate = async (newAlg = self.alg) => {
    self.key = await makeKey(newAlg);
    self.keys = [self.key.jwk];
  };

  const pages = {
    '/.well-known/oauth-authorization-server': () => ({
      issuer: self.issuer,
      authorization_endpoint: `${self.issuer}/authorize`,
      token_endpoint: `${self.issuer}/token`,
      registration_endpoint: `${self.issuer}/register`,
      jwks_uri: `${self.issuer}/jwks`,
      response_types_supported: ['code'],
      grant_types_supported: ['authorization_code'],
      code_challenge_methods_supported: ['S256'],
      token_endpoint_auth_methods_supported: ['none'],
      scopes_supported: [self.scope],
    }),
    '/jwks': () => ({ keys: self.keys }),
    '/register': (_, body) => ({ ...JSON.parse(body), client_id: randomUUID(), client_id_issued_at: 1 }),
    '/authorize': (url) => {
      const code = randomUUID();
      codes.set(code, { challenge: url.searchParams.get('code_challenge'), resource: url.searchParams.get('resource') });
      const target = new URL(url.searchParams.get('redirect_uri'));
      target.searchParams.set('code', code);
      const state = url.searchParams.get('state');
      if (state) target.searchParams.set('state', state);
      return { redirect: target.href };
    },
    '/token': async (_, body) => {
      const form = new URLSearchParams(body);
      const grant = codes.get(form.get('code'));
      codes.delete(form.get('code'));
      if (!grant || grant.challenge !== challengeOf(form.get('code_verifier'))) return { status: 400, error: 'invalid_grant' };
      self.issued += 1;
      const token = await self.token(form.get('resource') ?? grant.resource);
      return { access_token: token, token_type: 'Bearer', expires_in: 120, scope: self.scope };
    },
  };

  const server = http.createServer(async (request, response) => {
    const url = new URL(request.url, self.issuer);
    self.asked.push(url.pathname);
    const page = pages[url.pathname];
    const body = await bodyOf(request);
    const answer = page ? await page(url, body) : { status: 404 };
    if (answer.redirect) response.writeHead(302, { Location: answer.redirect }).end();
    else response.writeHead(answer.status ?? (url.pathname === '/register' ? 201 : 200), { 'Content-Type': 'application/json' })
      .end(JSON.stringify(answer));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  self.issuer = `http://127.0.0.1:${server.address().port}`;
  self.stop = () => new Promise((resolve) => {
    server.closeAllConnections();
    server.close(resolve);
  });
  return self;
}
