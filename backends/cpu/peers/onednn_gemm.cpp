// What oneDNN makes of the integer products of a layer: s8 x s8 into s32, one line for each shape.
//
//     g++ -O2 -std=c++17 peers/onednn_gemm.cpp -o target/onednn_gemm -ldnnl    (Debian: libdnnl-dev)
//     OMP_NUM_THREADS=1 target/onednn_gemm 64x1024x2048 1x4096x2048
//
// `cargo run --release --example gemm_rates -- ...` prints the same lines of this crate.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <algorithm>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

using namespace dnnl;
using tag = memory::format_tag;
using dt = memory::data_type;

static double seconds(const matmul &op, stream &s, const std::unordered_map<int, memory> &args, int repeats) {
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; i++) op.execute(s, args);
    s.wait();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / repeats;
}

static void measure(long m, long n, long k) {
    engine cpu(engine::kind::cpu, 0);
    stream s(cpu);
    // The library may choose how weights lie; it packs them outside of what is measured, as ours are.
    memory::desc a({m, k}, dt::s8, tag::ab), b({k, n}, dt::s8, tag::any), c({m, n}, dt::s32, tag::ab);
#if DNNL_VERSION_MAJOR >= 3
    matmul::primitive_desc pd(cpu, a, b, c);
#else
    matmul::primitive_desc pd({a, b, c}, cpu);
#endif
    memory x(a, cpu), w(pd.weights_desc(), cpu), y(c, cpu);
    std::vector<int8_t> codes(m * k), rows(k * n);
    for (size_t i = 0; i < codes.size(); i++) codes[i] = int8_t(int(i * 40503u >> 8 & 0xff) % 127);
    for (size_t i = 0; i < rows.size(); i++) rows[i] = int8_t(int(i * 2654435761u >> 24 & 0xff) % 127);
    std::copy(codes.begin(), codes.end(), (int8_t *)x.get_data_handle());
    memory plain({{k, n}, dt::s8, tag::ba}, cpu);
    std::copy(rows.begin(), rows.end(), (int8_t *)plain.get_data_handle());
    reorder(plain, w).execute(s, plain, w);
    s.wait();
    matmul op(pd);
    std::unordered_map<int, memory> args{{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DST, y}};
    double macs = double(m) * n * k;
    int repeats = std::max(3, int(5e8 / macs));
    seconds(op, s, args, 3);
    std::vector<double> runs;
    for (int i = 0; i < 9; i++) runs.push_back(seconds(op, s, args, repeats));
    std::sort(runs.begin(), runs.end());
    std::printf("%ldx%ldx%ld %.1f GOP/s %s\n", m, n, k, 2 * macs / runs[4] / 1e9, pd.impl_info_str());
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        long m, n, k;
        if (std::sscanf(argv[i], "%ldx%ldx%ld", &m, &n, &k) != 3) {
            std::fprintf(stderr, "%s: expected ROWSxCOLUMNSxDEPTH\n", argv[i]);
            return 2;
        }
        measure(m, n, k);
    }
}
