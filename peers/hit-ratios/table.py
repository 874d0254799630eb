#!/usr/bin/env python3
"""Misses of our cache and of others on the traces of docs/hit-ratios.md, as a Markdown table.

usage: table.py run TRACES RESULTS COLUMN...    measures; what RESULTS holds already is kept
       table.py show RESULTS                    prints the table
columns: ours (five seeds, and all simulated policies), server, memcached, caffeine, libcachesim

$ONLY names some of the traces, separated by commas. Needs numpy; entresol in $ENTRESOL (default target/release/entresol), memcached on the path, Caffeine's
jar in $CAFFEINE, and the Python package libcachesim for their columns.
"""
import json, lzma, os, socket, statistics, subprocess, sys, tempfile, time
import numpy as np

# Name of the file without its folder, format, and the size of values where it has none.
TRACES = [('web07', 'keys', 8000), ('web12', 'keys', 8000), ('corda', 'keys', 1000), ('oltp', 'keys', 1000),
          ('scarab', 'keys', 1000), ('w106', 'keys', 1000), ('p3', 'keys', 1000), ('scan-mix', 'csv', None),
          ('cdn-adapt', 'csv', None), ('cphysIO', 'csv', None), ('mixed', 'csv', None),
          ('onehit40', 'csv', None), ('zipf-drift', 'csv', None)]
PERCENTS, SEEDS, OVERHEAD, MIB = (1, 10, 30), range(1, 6), 34, 1 << 20
ENTRESOL = os.environ.get('ENTRESOL', 'target/release/entresol')
SERVER, MEMCACHED = '127.0.0.1:21212', '127.0.0.1:21211'


class Trace:
    def __init__(self, folder, name, form, size):
        self.name, self.form, self.size = name, form, size
        self.path = os.path.join(folder, f'{name}.{form}.xz' if form == 'keys' else f'{name}.csv.xz')
        data = lzma.open(self.path).read()
        if form == 'keys':
            keys = np.frombuffer(data, '>u4')
            weights = np.full(len(keys), size)
        else:
            rows = data.decode().splitlines()
            at = rows[0].split(',')
            rows = [row.split(',') for row in rows[1:]]
            keys = np.array([row[at.index('key')] for row in rows])
            weights = np.array([int(row[at.index('size')]) for row in rows])
        _, first, ids = np.unique(keys, return_index=True, return_inverse=True)
        self.ids, self.weights = ids.astype('<u4'), weights[first][ids].astype('<u4') + OVERHEAD
        self.footprint = int(self.weights[first].sum())

    def quota(self, percent):
        return self.footprint * percent // 100

    def bench(self, *more):
        sizes = ['--value-size', str(self.size)] if self.size else []
        command = [ENTRESOL, 'bench', 'trace', '--json', '--file', self.path, '--format', self.form, *sizes, *more]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
        return found

    def misses(self, found):
        return 100 - 100 * found['hit_ratio']


def listens(address):
    """Waits until a server answers at the address."""
    host, port = address.split(':')
    for _ in range(600):
        try:
            return socket.create_connection((host, int(port)), 1).close()
        except OSError:
            time.sleep(0.1)
    sys.exit(f'nothing listens at {address}')


def served(command, trace):
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            listens(SERVER if ENTRESOL in command else MEMCACHED)
            return trace.misses(trace.bench('--server', SERVER if ENTRESOL in command else MEMCACHED))
        finally:
            process.terminate()
            process.wait()


def ours(trace, percent):
    all_seeds = [trace.bench('--footprint', str(percent), '--threads', '1', '--seed', str(seed),
                             *(['--policy', 'all'] if seed == 1 else [])) for seed in SEEDS]
    found = {'ours': [trace.misses(one) for one in all_seeds]}
    for policy in all_seeds[0]['policies']:
        if policy['sizing'] == 'equal_memory':
            found['sim-' + policy['policy']] = [trace.misses(policy)]
    return found


def server(trace, percent):
    command = [ENTRESOL, 'serve', '--listen', SERVER, '--dram-quota', str(trace.quota(percent))]
    return {'server': [served(command, trace)]}


def memcached(trace, percent):
    mib = -(-trace.quota(percent) // MIB)
    command = ['memcached', '-u', 'nobody', '-l', '127.0.0.1', '-p', '21211', '-t', '1', '-m', str(mib)]
    return {'memcached': [served(command, trace)]}


def caffeine(trace, percent):
    path = os.path.join(tempfile.gettempdir(), 'requests.bin')
    np.column_stack([trace.ids, trace.weights]).astype('<u4').tofile(path)
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'CaffeineMisses.java')
    command = ['java', '-cp', os.environ['CAFFEINE'], program, path, str(len(SEEDS)), str(trace.quota(percent))]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split('\n')
    return {'caffeine': [100 * int(line.split()[1]) / len(trace.ids) for line in lines if line]}


def libcachesim(trace, percent):
    import libcachesim as lcs
    record = np.dtype([('time', '<u4'), ('key', '<u8'), ('size', '<u4'), ('next', '<i8')])
    records = np.zeros(len(trace.ids), record)
    records['key'], records['size'] = trace.ids + 1, trace.weights
    path, found = os.path.join(tempfile.gettempdir(), 'requests.oracleGeneral'), {}
    records.tofile(path)
    for name in ('FIFO', 'LRU', 'Clock', 'Sieve', 'S3FIFO', 'WTinyLFU', 'GDSF'):
        reader = lcs.TraceReader(path, lcs.TraceType.ORACLE_GENERAL_TRACE)
        ratio, _ = getattr(lcs, name)(cache_size=trace.quota(percent)).process_trace(reader)
        found['lcs-' + name.lower()] = [100 * ratio]
    return found


def run(folder, results, columns):
    os.makedirs(results, exist_ok=True)
    only = os.environ.get('ONLY', '').split(',')
    for name, form, size in TRACES:
        trace = None
        if only != [''] and name not in only:
            continue
        for percent in PERCENTS:
            for column in columns:
                path = os.path.join(results, f'{name}-{percent}-{column}.json')
                if os.path.exists(path):
                    continue
                trace = trace or Trace(folder, name, form, size)
                if trace.quota(percent) < MIB:
                    continue
                found = {'trace': name, 'percent': percent, 'quota': trace.quota(percent), 'misses': globals()[column](trace, percent)}
                with open(path, 'w') as out:
                    json.dump(found, out)
                print(path, flush=True)


def show(results):
    cells = {}
    for file in sorted(os.listdir(results)):
        with open(os.path.join(results, file)) as text:
            found = json.load(text)
        cell = cells.setdefault((found['trace'], found['percent']), {'quota': found['quota']})
        cell.update(found['misses'])
    order = [name for name, *_ in TRACES]
    columns = sorted({column for cell in cells.values() for column in cell if column != 'quota'})
    print('| trace | % of the footprint | MiB |', ' | '.join(columns), '|')
    print('|---' * (3 + len(columns)) + '|')
    for name, percent in sorted(cells, key=lambda cell: (order.index(cell[0]), cell[1])):
        cell = cells[name, percent]

        def text(values):
            if not values:
                return '-'
            spread = f' ({min(values):.2f} to {max(values):.2f})' if len(values) > 1 else ''
            return f'{statistics.median(values):.2f}{spread}'
        print(f'| {name} | {percent} | {cell["quota"] / MIB:.1f} |',
              ' | '.join(text(cell.get(column)) for column in columns), '|')


if __name__ == '__main__':
    if len(sys.argv) > 3 and sys.argv[1] == 'run':
        run(sys.argv[2], sys.argv[3], sys.argv[4:])
    elif len(sys.argv) == 3 and sys.argv[1] == 'show':
        show(sys.argv[2])
    else:
        sys.exit(__doc__)
