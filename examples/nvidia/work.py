"""What the pods of the story run: takes memory of the card it sees, then multiplies matrices, and says how that went.

python work.py 30            # takes 30 GiB, multiplies
python work.py 60 --hold 20  # takes 60 GiB, multiplies, keeps the memory for 20 s
"""

import argparse
import sys
import time

import torch

SIZE = 8192


def speed() -> float:
    """Bfloat16 matrix products of random numbers, in TFLOP/s: the mean of ten after three to warm up."""
    a, b = (torch.randn(SIZE, SIZE, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    for _ in range(3):
        a @ b
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(10):
        a @ b
    torch.cuda.synchronize()
    return 2 * SIZE**3 * 10 / (time.perf_counter() - began) / 1e12


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("gib", type=int)
    parser.add_argument("--hold", type=float, default=0)
    options = parser.parse_args()
    print(
        f"{torch.cuda.device_count()} card(s) in sight, {torch.cuda.get_device_properties(0).multi_processor_count} multiprocessors"
    )
    try:
        memory = torch.empty(options.gib << 30, dtype=torch.uint8, device="cuda").fill_(1)
    except torch.OutOfMemoryError as error:
        print(f"{options.gib} GiB: out of memory: {str(error).splitlines()[0]}")
        sys.exit(3)
    print(f"{options.gib} GiB taken")
    print(f"matrix product {SIZE}x{SIZE} in bfloat16: {speed():.0f} TFLOP/s", flush=True)
    end = time.monotonic() + options.hold
    while time.monotonic() < end:
        memory[0] += 1
        torch.cuda.synchronize()
        time.sleep(0.2)
    print("done")


if __name__ == "__main__":
    main()
