// What a checkpoint costs: saved, and loaded again, from the disk and from the system's cache, each
// in turns with a plain file of as many bytes:
//
//   bazel run //tools/bench:checkpoints [-- MIB [FOLDER]]
//
// FOLDER should be on the disk that counts. `serve MIB FOLDER` answers lines from its input
// ("save", "load", "cold") with the seconds that these took, for tools/bench/peers.
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "executor/variables/checkpoint_writer.h"
#include "executor/variables/variable_store.h"
#include "graph/ids.h"
#include "graph/partition.h"
#include "platform/clock.h"
#include "platform/file_system.h"
#include "platform/folders.h"
#include "platform/status_macros.h"
#include "tensor/device.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "tensor/tensor.h"
#include "tools/bench/bench_job.h"
#include "training/checkpoint/checkpoint_store.h"

namespace weft {
namespace {

constexpr int kRounds = 7;
// Of a variable: 2048 x 2048 of float32.
constexpr int64_t kSide = 2048;
constexpr int64_t kVariableMib = 16;
constexpr double kGiga = 1e-9;

double Seconds() { return static_cast<double>(RealClock().MonotonicNanos()) * 1e-9; }

// That the processors of this process have worked so far.
double ProcessorSeconds() {
  struct timespec time = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// The system forgets what it has of the file.
void ForgetFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  close(file);
}

// A rank whose variables have so many MiB, and the folder of its checkpoints.
class SavedState {
 public:
  SavedState(const std::string& folder, int64_t mib)
      : store_(RealFileSystem(), RealFolders(), folder), variables_(CpuDevice()), mib_(mib) {}

  absl::Status Fill() {
    std::vector<VariableShard> shards;
    std::vector<std::string> names;
    for (int64_t i = 0; i < std::max<int64_t>(mib_ / kVariableMib, 1); ++i) {
      VariableShard& shard = shards.emplace_back();
      shard.name = absl::StrCat("layer", i, ".weight");
      shard.dtype = DType::kFloat32;
      shard.global_shape = shard.local_shape = Shape({kSide, kSide});
      shard.is_primary = true;
      names.push_back(shard.name);
    }
    WEFT_RETURN_IF_ERROR(variables_.Add(shards));
    std::vector<float> values(static_cast<size_t>(kSide * kSide));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 10007) * 1e-4F;
    for (const VariableShard& shard : shards) {
      values[0] += 1;
      WEFT_RETURN_IF_ERROR(variables_.Write(shard.name, Tensor::Of(shard.local_shape, values)));
    }
    shards_ = std::move(shards);
    WEFT_RETURN_IF_ERROR(writer_.Add(names));
    return writer_.Prepare();
  }
  int64_t bytes() const { return writer_.bytes(); }

  // From the moment that steps would wait to that at which the checkpoint has its name; how long
  // they would have waited goes to `pause`.
  absl::StatusOr<double> Save(double& pause) {
    const double begin = Seconds();
    ++step_;
    WEFT_ASSIGN_OR_RETURN(const std::string folder, store_.Begin(step_, 1));
    WEFT_RETURN_IF_ERROR(writer_.Save(folder));
    const CheckpointWrite write = writer_.Poll(/*wait=*/true);
    WEFT_RETURN_IF_ERROR(write.status);
    pause = write.pause_seconds;
    WEFT_RETURN_IF_ERROR(store_.Commit(folder, IndexOf(write)));
    const double seconds = Seconds() - begin;
    WEFT_RETURN_IF_ERROR(store_.Prune(1));
    return seconds;
  }
  // Finds the newest, verifies it and reads all of it.
  absl::StatusOr<double> Load() {
    const double begin = Seconds();
    std::vector<std::string> notes;
    WEFT_ASSIGN_OR_RETURN(const std::optional<Checkpoint> newest, store_.OpenNewest(notes));
    if (!newest.has_value() || newest->index().step != step_) {
      return absl::DataLossError(absl::StrCat("the newest checkpoint is not of step ", step_));
    }
    std::vector<Tensor> tensors;
    for (const CheckpointTensor& tensor : newest->index().tensors) {
      WEFT_ASSIGN_OR_RETURN(tensors.emplace_back(), newest->Read(tensor.name));
    }
    return Seconds() - begin;
  }
  void Forget() const {
    ForgetFile(absl::StrCat(store_.PathOf(step_), "/", "rank-00000.safetensors"));
  }

 private:
  CheckpointIndex IndexOf(const CheckpointWrite& write) const {
    CheckpointIndex index;
    index.step = step_;
    index.files.push_back({write.file, write.bytes, write.checksum});
    for (const VariableShard& shard : shards_) {
      CheckpointTensor& tensor = index.tensors.emplace_back();
      tensor.name = shard.name;
      tensor.dtype = shard.dtype;
      tensor.shape = shard.global_shape;
      tensor.parts.emplace_back().checksum = write.tensors.at(shard.name);
    }
    return index;
  }

  CheckpointStore store_;
  VariableStore variables_;
  const int64_t mib_;
  CheckpointWriter writer_{RealFileSystem(), RealClock(), variables_, RankId(0)};
  std::vector<VariableShard> shards_;
  int64_t step_ = 0;
};

// As a program that knows nothing better: through the cache, flushed, renamed by nobody.
absl::StatusOr<double> WritePlainFile(const std::string& path, const std::vector<char>& bytes) {
  const double begin = Seconds();
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  size_t done = 0;
  while (file >= 0 && done < bytes.size()) {
    const ssize_t written = write(file, bytes.data() + done, bytes.size() - done);
    if (written <= 0) break;
    done += static_cast<size_t>(written);
  }
  const bool ok = file >= 0 && done == bytes.size() && fsync(file) == 0;
  if (file >= 0) close(file);
  if (!ok) return absl::InternalError(absl::StrCat("cannot write '", path, "'"));
  return Seconds() - begin;
}

// Into memory that nobody has touched yet, as who loads has it.
absl::StatusOr<double> ReadPlainFile(const std::string& path, size_t bytes) {
  const double begin = Seconds();
  const std::unique_ptr<char[]> memory(new char[bytes]);
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  size_t done = 0;
  while (file >= 0 && done < bytes) {
    const ssize_t got = read(file, memory.get() + done, bytes - done);
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  if (file >= 0) close(file);
  if (done < bytes) return absl::InternalError(absl::StrCat("cannot read '", path, "'"));
  return Seconds() - begin;
}

// Of both sides, in turns.
struct Rates {
  std::vector<double> own, plain, ratios;
  void Add(double bytes, double own_seconds, double plain_seconds) {
    own.push_back(bytes * kGiga / own_seconds);
    plain.push_back(bytes * kGiga / plain_seconds);
    ratios.push_back(plain_seconds / own_seconds);
  }
  void Print(const std::string& what) const {
    PrintMedian((what + ", GB/s").c_str(), own);
    PrintMedian("  a plain file, GB/s", plain);
    PrintMedian("  so many times as fast", ratios);
  }
};

absl::Status MeasureFiles(const std::string& folder, int64_t mib) {
  SavedState state(folder + "/saved", mib);
  WEFT_RETURN_IF_ERROR(state.Fill());
  const std::string path = folder + "/plain";
  const std::vector<char> plain(static_cast<size_t>(state.bytes()), 'x');
  const auto bytes = static_cast<double>(state.bytes());
  Rates saved, cold, warm;
  std::vector<double> pauses, work, plain_work;
  for (int round = 0; round < kRounds; ++round) {
    double pause = 0;
    const double first = ProcessorSeconds();
    WEFT_ASSIGN_OR_RETURN(const double save, state.Save(pause));
    const double second = ProcessorSeconds();
    WEFT_ASSIGN_OR_RETURN(const double write, WritePlainFile(path, plain));
    work.push_back((second - first) * 1e3);
    plain_work.push_back((ProcessorSeconds() - second) * 1e3);
    saved.Add(bytes, save, write);
    pauses.push_back(pause * 1e3);
    state.Forget();
    ForgetFile(path);
    WEFT_ASSIGN_OR_RETURN(const double load, state.Load());
    WEFT_ASSIGN_OR_RETURN(const double read, ReadPlainFile(path, plain.size()));
    cold.Add(bytes, load, read);
    WEFT_ASSIGN_OR_RETURN(const double load_again, state.Load());
    WEFT_ASSIGN_OR_RETURN(const double read_again, ReadPlainFile(path, plain.size()));
    warm.Add(bytes, load_again, read_again);
  }
  std::printf("a checkpoint of %ld MiB, %d rounds\n", static_cast<long>(mib), kRounds);
  saved.Print("saved and safe on the disk");
  PrintMedian("  steps waited, ms", pauses);
  PrintMedian("  ms of processors, the copy included", work);
  PrintMedian("  ms of processors for a plain file", plain_work);
  cold.Print("verified and read from the disk");
  warm.Print("verified and read from the cache");
  return absl::OkStatus();
}

absl::Status Serve(const std::string& folder, int64_t mib) {
  SavedState state(folder, mib);
  WEFT_RETURN_IF_ERROR(state.Fill());
  for (std::string line; std::cin >> line;) {
    double pause = 0;
    absl::StatusOr<double> seconds = 0.0;
    if (line == "cold") state.Forget();
    if (line == "save") seconds = state.Save(pause);
    if (line == "load") seconds = state.Load();
    WEFT_RETURN_IF_ERROR(seconds.status());
    std::printf("%.6f %.6f\n", *seconds, pause);
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

absl::Status Measure(std::vector<std::string> arguments) {
  const bool serves = !arguments.empty() && arguments.front() == "serve";
  if (serves) arguments.erase(arguments.begin());
  int64_t mib = 512;
  if (!arguments.empty() && !absl::SimpleAtoi(arguments.front(), &mib)) {
    return absl::InvalidArgumentError("the arguments are [serve] MIB FOLDER");
  }
  std::string folder =
      absl::StrCat(arguments.size() > 1 ? arguments[1] : "/tmp", "/weft-checkpoints-XXXXXX");
  if (mkdtemp(folder.data()) == nullptr) return absl::InternalError("no temporary folder");
  const absl::Status status = serves ? Serve(folder, mib) : MeasureFiles(folder, mib);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return status;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return weft::BenchMain(argc, argv, [&] { return weft::Measure(arguments); });
}
