// A forged checkpoint: any index, with the checksum that it must have, and any file of tensors, of
// which the index may say what it likes. Before the line "----" is the index, behind it the file.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "platform/checksum.h"
#include "platform/testing/fake_file_system.h"
#include "training/checkpoint/checkpoint.h"
#include "training/job/resume.h"

namespace weft {
namespace {

constexpr char kBorder[] = "\n----\n";
// Tensors that are read whole; memory is for what a file holds.
constexpr int64_t kMaxBytes = 1 << 20;

std::string Sealed(const std::string& body) {
  const uint64_t checksum = Checksum(std::as_bytes(std::span(body)));
  return absl::StrCat(body, ",\n\"checksum\": \"", absl::StrFormat("%016x", checksum), "\"\n}\n");
}

void TakeIndex(const std::string& text) {
  const auto index = CheckpointIndex::FromJson(text, "index.json");
  if (!index.ok()) return;
  (void)index->bytes();
  (void)JobDifferences(index->job, CheckpointJob());
  // What was taken can be written, and is taken again.
  const auto again = CheckpointIndex::FromJson(index->ToJson(), "again.json");
  if (again.ok()) return;
  std::fprintf(stderr, "%s\n", again.status().ToString().c_str());
  std::abort();
}

void TakeCheckpoint(const std::string& input) {
  const size_t border = input.find(kBorder);
  const std::string index = Sealed(input.substr(0, border));
  TakeIndex(index);
  testing::FakeFileSystem files;
  (void)files.CreateDirectories("step");
  (void)files.WriteFileAtomically("step/index.json", index);
  if (border != std::string::npos) {
    (void)files.WriteFileAtomically("step/rank-00000.safetensors",
                                    input.substr(border + sizeof(kBorder) - 1));
  }
  const auto checkpoint = Checkpoint::Open(files, "step");
  if (!checkpoint.ok()) return;
  (void)checkpoint->Verify();
  for (const CheckpointTensor& tensor : checkpoint->index().tensors) {
    const bool is_small = tensor.shape.num_elements() <= kMaxBytes;
    if (is_small) (void)checkpoint->Read(tensor.name);
  }
}

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::TakeCheckpoint(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
