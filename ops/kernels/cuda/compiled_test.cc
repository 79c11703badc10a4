// What nvcc made of all kernels, from its reports: registers, memory, threads that run at once.
// With
// --config=cuda; needs no GPU. The whole table is kernels.tsv among the outputs of the test.
#include <cuda_occupancy.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <ostream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/testing/compiled/ptxas_report.h"

namespace weft::cuda {
namespace {

using weft::testing::CompiledKernel;
using weft::testing::Multiprocessor;
using weft::testing::Multiprocessors;

// Kernels that may be what others may not, with the reason. `body`: the begin of the name.
struct Exception {
  const char* body;
  int64_t max_stack_bytes = 0;
  double min_occupancy = 0;  // of A100 and H100
  const char* reason = "";
};

// Below this part of the threads of a multiprocessor the latency of its memory shows.
constexpr double kMinOccupancy = 0.25;

const std::vector<Exception>& Exceptions() {
  constexpr const char* kReduces = "CUDA's library reduces arguments beyond 10^5 in an array";
  static const auto* const exceptions = new std::vector<Exception>{
      {"UnaryBody<SinOp,", 40, kMinOccupancy, kReduces},
      {"UnaryBody<CosOp,", 40, kMinOccupancy, kReduces},
      {"UnaryBody<TanOp,", 40, kMinOccupancy, kReduces},
      {"TransposeBody<unsigned char, 4,", 0, 0.125,
       "a thread has a square of 16 bytes in registers"},
      {"BinaryBody<GeluGradOp, double,", 0, 0.125, "erf and exp in double; rare"},
  };
  return *exceptions;
}

Exception LimitsOf(const CompiledKernel& kernel) {
  for (const Exception& exception : Exceptions()) {
    if (kernel.name.starts_with(exception.body)) return exception;
  }
  return {.body = "", .min_occupancy = kMinOccupancy};
}

// Those that run machine code of an architecture as it is: sm_80 on 8.0, sm_90 on 9.0.
const Multiprocessor* MultiprocessorOf(int architecture) {
  for (const Multiprocessor& multiprocessor : Multiprocessors()) {
    if (multiprocessor.major * 10 + multiprocessor.minor == architecture) return &multiprocessor;
  }
  return nullptr;
}

double OccupancyOf(const CompiledKernel& kernel) {
  const Multiprocessor* const multiprocessor = MultiprocessorOf(kernel.architecture);
  if (multiprocessor == nullptr || kernel.max_threads == 0) return 0;
  return Occupancy(*multiprocessor, kernel.max_threads, kernel.registers, kernel.shared_bytes);
}

// Kernels by the source that they come from, as FAMILY/NAME.cu.
using Kernels = std::map<std::string, std::vector<CompiledKernel>>;

class Compiled : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::filesystem::path top = "ops/kernels/cuda";
    const std::string ending = ".ptxas.txt";
    for (const auto& entry : std::filesystem::recursive_directory_iterator(
             top, std::filesystem::directory_options::follow_directory_symlink)) {
      const std::string path = entry.path().lexically_relative(top).string();
      if (!path.ends_with(ending)) continue;
      std::ostringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      const auto kernels = weft::testing::ReadPtxasReport(text.str());
      ASSERT_TRUE(kernels.ok()) << path << ": " << kernels.status();
      EXPECT_FALSE(kernels->empty()) << path << ": has no kernel";
      // elementwise/elementwise_gpu/math.ptxas.txt
      std::string source = entry.path().filename().string();
      source.resize(source.size() - ending.size());
      kernels_[path.substr(0, path.find('/')) + "/" + source + ".cu"] = *kernels;
    }
    ASSERT_FALSE(kernels_.empty()) << "there are no reports: build with --config=cuda";
  }

  Kernels kernels_;
};

TEST_F(Compiled, NoKernelSpillsRegisters) {
  for (const auto& [source, kernels] : kernels_) {
    for (const CompiledKernel& kernel : kernels) {
      EXPECT_EQ(kernel.spill_bytes, 0)
          << source << ", sm_" << kernel.architecture << ": " << kernel.name << " needs more than "
          << kernel.registers << " registers; keep fewer values in it, or launch fewer threads";
    }
  }
}

TEST_F(Compiled, NoKernelKeepsArraysInMemory) {
  for (const auto& [source, kernels] : kernels_) {
    for (const CompiledKernel& kernel : kernels) {
      EXPECT_LE(kernel.stack_bytes, LimitsOf(kernel).max_stack_bytes)
          << source << ", sm_" << kernel.architecture << ": " << kernel.name
          << " has an array with an index that is known at run time alone, or calls a function "
             "that has; where it must, say so in Exceptions()";
    }
  }
}

TEST_F(Compiled, EnoughThreadsRunAtOnce) {
  for (const auto& [source, kernels] : kernels_) {
    for (const CompiledKernel& kernel : kernels) {
      ASSERT_NE(MultiprocessorOf(kernel.architecture), nullptr) << kernel.architecture;
      ASSERT_GT(kernel.max_threads, 0) << source << ": " << kernel.name << " is no Launch";
      EXPECT_GE(OccupancyOf(kernel), LimitsOf(kernel).min_occupancy)
          << source << ", sm_" << kernel.architecture << ": " << kernel.name << " has "
          << kernel.registers << " registers for each of " << kernel.max_threads << " threads, and "
          << kernel.shared_bytes << " bytes of shared memory";
    }
  }
}

TEST_F(Compiled, EachSourceIsThereForEachArchitecture) {
  for (const auto& [source, kernels] : kernels_) {
    std::map<int, std::vector<std::string>> names;
    for (const CompiledKernel& kernel : kernels) names[kernel.architecture].push_back(kernel.name);
    ASSERT_EQ(names.count(80), 1u) << source;
    ASSERT_EQ(names.count(90), 1u) << source;
    for (auto& [architecture, list] : names) std::sort(list.begin(), list.end());
    EXPECT_EQ(names[80], names[90]) << source;
  }
}

TEST_F(Compiled, ExceptionsAreNeeded) {
  for (const Exception& exception : Exceptions()) {
    bool is_needed = false;
    for (const auto& [source, kernels] : kernels_) {
      for (const CompiledKernel& kernel : kernels) {
        if (!kernel.name.starts_with(exception.body)) continue;
        is_needed |= kernel.stack_bytes > 0 || OccupancyOf(kernel) < kMinOccupancy;
      }
    }
    EXPECT_TRUE(is_needed) << exception.body << " needs no exception";
  }
}

// A row of hot_kernels.tsv.
struct HotKernel {
  std::string name;
  int architecture = 0;
  int threads = 0;
  int registers = 0;
  int64_t shared_bytes = 0;
  double occupancy = 0;
};

// Registers may be off by so many: versions of nvcc differ.
constexpr int kRegisterSlack = 16;

// The rows; a line that is none ends the test.
std::vector<HotKernel> HotKernels() {
  std::ifstream file("ops/kernels/cuda/hot_kernels.tsv");
  std::vector<HotKernel> kernels;
  std::string line;
  std::getline(file, line);  // the names of the columns
  while (std::getline(file, line)) {
    HotKernel kernel;
    const size_t tab = line.find('\t');
    kernel.name = line.substr(0, tab);
    std::istringstream rest(tab == std::string::npos ? "" : line.substr(tab));
    std::string architecture;
    rest >> architecture >> kernel.threads >> kernel.registers >> kernel.shared_bytes >>
        kernel.occupancy;
    EXPECT_TRUE(rest && architecture.starts_with("sm_")) << "this is no row: " << line;
    if (architecture.size() > 3) kernel.architecture = std::atoi(architecture.c_str() + 3);
    kernels.push_back(kernel);
  }
  return kernels;
}

TEST_F(Compiled, HotKernelsAreAsTheTableSays) {
  const std::vector<HotKernel> rows = HotKernels();
  ASSERT_GE(rows.size(), 20u);
  std::map<std::string, std::set<int>> architectures;
  for (const HotKernel& row : rows) {
    architectures[row.name].insert(row.architecture);
    const CompiledKernel* found = nullptr;
    for (const auto& [source, kernels] : kernels_) {
      for (const CompiledKernel& kernel : kernels) {
        if (kernel.name == row.name && kernel.architecture == row.architecture) found = &kernel;
      }
    }
    if (found == nullptr) {
      ADD_FAILURE() << row.name << " for sm_" << row.architecture << " is not there any more";
      continue;
    }
    std::ostringstream now;
    now << "; now hot_kernels.tsv would say: " << row.name << "\tsm_" << row.architecture << '\t'
        << found->max_threads << '\t' << found->registers << '\t' << found->shared_bytes << '\t'
        << OccupancyOf(*found);
    EXPECT_EQ(found->spill_bytes, 0) << now.str();
    EXPECT_EQ(found->max_threads, row.threads) << now.str();
    EXPECT_EQ(found->shared_bytes, row.shared_bytes) << now.str();
    EXPECT_LE(found->registers, row.registers + kRegisterSlack) << "more registers" << now.str();
    EXPECT_GE(found->registers, row.registers - kRegisterSlack) << "an old table" << now.str();
    EXPECT_GE(OccupancyOf(*found), 0.75 * row.occupancy) << "fewer threads at once" << now.str();
  }
  for (const auto& [name, of_name] : architectures) {
    EXPECT_EQ(of_name, (std::set<int>{80, 90})) << name;
  }
}

// Writes the table of all kernels, and prints what each source comes to.
TEST_F(Compiled, WritesItsTable) {
  const char* const folder = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  ASSERT_NE(folder, nullptr);
  std::ofstream table(std::filesystem::path(folder) / "kernels.tsv");
  table << "source\tkernel\tarchitecture\tthreads\tregisters\tshared\tstack\tspills\toccupancy\n";
  for (const auto& [source, kernels] : kernels_) {
    std::map<int, int> max_registers;
    std::map<int, double> min_occupancy;
    for (const CompiledKernel& k : kernels) {
      table << source << '\t' << k.name << "\tsm_" << k.architecture << '\t' << k.max_threads
            << '\t' << k.registers << '\t' << k.shared_bytes << '\t' << k.stack_bytes << '\t'
            << k.spill_bytes << '\t' << OccupancyOf(k) << '\n';
      max_registers[k.architecture] = std::max(max_registers[k.architecture], k.registers);
      double& minimum = min_occupancy.emplace(k.architecture, 1).first->second;
      minimum = std::min(minimum, OccupancyOf(k));
    }
    std::cout << source << ": " << kernels.size() / max_registers.size() << " kernels";
    for (const auto& [architecture, registers] : max_registers) {
      std::cout << ", sm_" << architecture << " at most " << registers << " registers, at least "
                << 100 * min_occupancy[architecture] << " % of threads";
    }
    std::cout << "\n";
  }
  table.flush();
  EXPECT_TRUE(table.good());
}

// The toolkit's own calculator is the independent truth.
TEST(ResidentBlocks, IsWhatTheToolkitSays) {
  int compared = 0;
  for (const Multiprocessor& multiprocessor : Multiprocessors()) {
    cudaOccDeviceProp device;
    device.computeMajor = multiprocessor.major;
    device.computeMinor = multiprocessor.minor;
    device.maxThreadsPerBlock = 1024;
    device.maxThreadsPerMultiprocessor = multiprocessor.max_threads;
    device.regsPerBlock = device.regsPerMultiprocessor = 65536;
    device.warpSize = 32;
    device.sharedMemPerBlock = 48 << 10;
    device.sharedMemPerMultiprocessor = static_cast<size_t>(multiprocessor.shared_bytes);
    device.sharedMemPerBlockOptin = static_cast<size_t>(multiprocessor.shared_bytes - 1024);
    device.reservedSharedMemPerBlock = 1024;
    device.numSms = 1;
    cudaOccDeviceState state;
    state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    for (const int threads : {1, 32, 64, 96, 128, 160, 256, 384, 512, 768, 1000, 1024}) {
      for (const int registers :
           {1, 8, 16, 31, 32, 33, 40, 48, 63, 64, 65, 80, 96, 128, 168, 255}) {
        for (const int shared : {0, 1, 1000, 4096, 20'000, 48 << 10, 96 << 10, 227 << 10}) {
          cudaOccFuncAttributes function;
          function.maxThreadsPerBlock = 1024;
          function.numRegs = registers;
          function.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
          function.maxDynamicSharedSizeBytes = static_cast<size_t>(shared);
          cudaOccResult result;
          ASSERT_EQ(cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &function, &state,
                                                            threads, static_cast<size_t>(shared)),
                    CUDA_OCC_SUCCESS);
          EXPECT_EQ(weft::testing::ResidentBlocks(multiprocessor, threads, registers, shared),
                    result.activeBlocksPerMultiprocessor)
              << multiprocessor.gpus << ", threads " << threads << ", registers " << registers
              << ", shared memory " << shared;
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 5000);
}

}  // namespace
}  // namespace weft::cuda
