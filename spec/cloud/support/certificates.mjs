// certificates.mjs - a certificate authority for one run, and certificates of it, by the openssl program.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';

export class Authority {
  constructor() {
    this.folder = fs.mkdtempSync(path.join(process.env.DML_SPEC_TMP ?? os.tmpdir(), 'ca-'));
    this.file = path.join(this.folder, 'ca.pem');
    this.#run(
      'req',
      '-x509',
      '-newkey',
      'ec',
      '-pkeyopt',
      'ec_paramgen_curve:P-256',
      '-nodes',
      '-days',
      '2',
      '-subj',
      '/CN=spec authority',
      '-keyout',
      'ca.key',
      '-out',
      'ca.pem',
      '-addext',
      'basicConstraints=critical,CA:TRUE',
    );
  }

  #run(...args) {
    execFileSync('openssl', args, { cwd: this.folder, stdio: ['ignore', 'ignore', 'pipe'] });
  }

  /** A key and a certificate for some names ("DNS:a.test", "IP:127.0.0.1"); `days` below 1 is one that is over. */
  issue(names, days = 1) {
    const name = `c${fs.readdirSync(this.folder).length}`;
    fs.writeFileSync(path.join(this.folder, `${name}.ext`), `subjectAltName=${names.join(',')}\n`);
    this.#run(
      'req',
      '-newkey',
      'ec',
      '-pkeyopt',
      'ec_paramgen_curve:P-256',
      '-nodes',
      '-subj',
      '/CN=spec',
      '-keyout',
      `${name}.key`,
      '-out',
      `${name}.csr`,
    );
    if (days >= 1) {
      this.#run(
        'x509',
        '-req',
        '-in',
        `${name}.csr`,
        '-CA',
        'ca.pem',
        '-CAkey',
        'ca.key',
        '-days',
        String(days),
        '-extfile',
        `${name}.ext`,
        '-out',
        `${name}.pem`,
      );
    } else {
      this.#expired(name);
    }
    const read = (ending) => fs.readFileSync(path.join(this.folder, `${name}.${ending}`), 'utf8');
    return { key: read('key'), cert: read('pem') };
  }

  // `openssl x509` takes no dates before now; `openssl ca` does.
  #expired(name) {
    fs.writeFileSync(path.join(this.folder, 'index'), '');
    fs.writeFileSync(path.join(this.folder, 'serial'), '1000\n');
    fs.writeFileSync(
      path.join(this.folder, 'ca.cnf'),
      [
        '[ca]',
        'default_ca=d',
        '[d]',
        'database=index',
        'serial=serial',
        'new_certs_dir=.',
        'default_md=sha256',
        'policy=p',
        '[p]',
        'commonName=supplied',
        '',
      ].join('\n'),
    );
    this.#run(
      'ca',
      '-batch',
      '-config',
      'ca.cnf',
      '-cert',
      'ca.pem',
      '-keyfile',
      'ca.key',
      '-in',
      `${name}.csr`,
      '-out',
      `${name}.pem`,
      '-notext',
      '-startdate',
      '20200101000000Z',
      '-enddate',
      '20200201000000Z',
      '-extfile',
      `${name}.ext`,
    );
  }

  remove() {
    fs.rmSync(this.folder, { recursive: true, force: true });
  }
}
