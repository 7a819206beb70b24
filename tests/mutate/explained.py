"""Mutants that no test can notice, by name (`make mutate` prints it), with the reason."""

SPEED = "only the speed depends on it"
FOR_PEOPLE = "it is read by people"

EXPLAINED: dict[str, str] = {
    "alpha/data/cifar/sample.py:: 3 -> 4": "an upper limit: any number above the size of the largest strip will do",
    "alpha/nn/summary/model_summary.py:_cells: 1e6 -> 1000001.0": (
        "it shows in a layer of 10^11 operations, which a test cannot run"
    ),
    "alpha/ops/normalization/batch_norm_cpu.py:_sums_and_dX: workers.parallel_for(R, grain, sums, blas=True) -> "
    "workers.parallel_for(R, grain, sums, )": f"{SPEED}: BLAS would begin threads in each worker",
    'alpha/ops/conv2d/cpu.py:_sum_of_products: "product" -> "XXproductXX"': "a name that only has to be another one",
    "alpha/ops/conv2d/direct.py:direct_weight_ffma: 28 -> 29": f"{SPEED}, and that of 29 weights alone, a prime number",
    "alpha/ops/conv2d/select/tune.py:: 64 << 20 -> 64 >> 20": "measurements are more even",
    "alpha/ops/conv2d/select/tune.py:TuningCache.add: json.dumps(content, indent=1) -> json.dumps(content, )": (
        FOR_PEOPLE
    ),
    "alpha/ops/conv2d/select/tune.py:measure: > until -> >= until": SPEED,
    "alpha/ops/matmul/cpu.py:: 22 -> 23": f"{SPEED}: into how many pieces a product is cut",
    "alpha/ops/kernel/sums.py:Sum.forward: divide_by_number(Y, p=self.count, out=Y) -> "
    "divide_by_number(Y, p=self.count, )": "it saves a second array of the size of the result",
    "alpha/runtime/arena/arena.py:Arena.__init__: 0 -> 1": "no segment is smaller than 1 byte",
    'alpha/runtime/cuda/emulated/emulated_compiler.py:: "avx2" -> "XXavx2XX"': SPEED,
    "alpha/runtime/cuda/emulated/emulated_memory.py:: 256 -> 257": "more freed arrays stay untouchable",
    "alpha/train/files/curves.py:save_curves: axes.set_xlim(epochs[0] - 0.5, epochs[-1] + 0.5) -> pass": FOR_PEOPLE,
    "alpha/io/pickles.py:with_results.converted: kept.append(part) -> pass": "another object may then get the same id",
    "alpha/models/torchvision/mobilenet.py:_conv_bn: nn.ReLU6(inplace=True) -> nn.ReLU6()": "it saves memory",
    "alpha/io/files.py:write_atomically: file.flush() -> pass": "it shows after a crash of the machine",
    "alpha/train/trainer.py:: 10 -> 11": f"{SPEED}: how often a step waits for the GPU",
    'alpha/train/machine.py:Machine.adder: == "cpu" -> != "cpu"': f"{SPEED}: when losses are read",
}
