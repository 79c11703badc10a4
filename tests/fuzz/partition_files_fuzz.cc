// Arbitrary text as a partition that somebody has edited, with any graph. Before the line "----" is
// the text, behind it the graph that it names.
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "distributed/grpc/partition_files.h"
#include "distributed/grpc/partition_wire.h"
#include "placement/partition/partition_check.h"
#include "platform/testing/fake_file_system.h"

namespace weft {
namespace {

constexpr char kBorder[] = "\n----\n";

void TakePartition(const std::string& input) {
  const size_t border = input.find(kBorder);
  testing::FakeFileSystem files;
  (void)files.CreateDirectories("rank-0");
  (void)files.WriteFileAtomically("rank-0/partition.textproto", input.substr(0, border));
  if (border != std::string::npos) {
    const std::string graph = input.substr(border + sizeof(kBorder) - 1);
    for (const char* const name : {"begin.onnx", "micro-0.onnx", "end.onnx"}) {
      (void)files.WriteFileAtomically(std::string("rank-0/") + name, graph);
    }
  }
  auto partition = ReadPartitionFiles(files, "rank-0");
  if (!partition.ok()) return;
  const auto bytes = EncodePartition(*partition);
  if (bytes.ok()) (void)DecodePartition(*bytes);
  std::vector<Partition> all;
  all.push_back(*std::move(partition));
  (void)CheckPartitions(all);
}

}  // namespace
}  // namespace weft

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  weft::TakePartition(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
