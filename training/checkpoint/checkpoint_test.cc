// Checkpoints as files: what is written is read, what was damaged is found, and whatever a killed
// process leaves behind, the last good one is there.
#include "training/checkpoint/checkpoint.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "executor/variables/safetensors.h"
#include "executor/variables/variable_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/checksum.h"
#include "platform/random.h"
#include "platform/status_macros.h"
#include "platform/testing/faulty_disk.h"
#include "training/checkpoint/checkpoint_store.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

uint64_t ChecksumOf(const std::string& text) { return Checksum(std::as_bytes(std::span(text))); }

Tensor Numbers(const Shape& shape, float first) {
  std::vector<float> values(static_cast<size_t>(shape.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i);
  return Tensor::Of<float>(shape, values);
}

// How a tensor is cut over the files: shards x row_shards parts, part k in file k.
struct Cut {
  std::string name;
  Tensor whole;
  AxisSharding sharding = {};
  int shards = 1;
  int row_shards = 1;
};

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/weft-checkpoint-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    root_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  static std::vector<Cut> Tensors(float first) {
    return {{"bias", Numbers(Shape({3}), first)},
            {"fused", Numbers(Shape({2, 12}), first + 10), AxisSharding::Split(1, 3), 2},
            {"uneven", Numbers(Shape({5, 2}), first + 50), {}, 1, 2},
            {"both", Numbers(Shape({7, 4}), first + 70), AxisSharding::Split(1), 2, 2}};
  }

  // Writes the files to `folder` and returns the index.
  static absl::StatusOr<CheckpointIndex> WriteFiles(FileSystem& files, const std::string& folder,
                                                    int64_t step, const std::vector<Cut>& cuts) {
    CheckpointIndex index;
    index.step = step;
    index.job.data = R"({"batch":4})";
    index.job.flags = {{"--lr", "0.1"}};
    index.job.plan = "mesh: {data: 2}\n";
    index.job.trained = {"w", "b"};
    index.job.untrained = {{"mask", "holds -inf"}};
    index.loop = {{"best", 0.5}};
    std::vector<std::vector<std::pair<SafetensorsEntry, Tensor>>> contents;
    for (const Cut& cut : cuts) {
      CheckpointTensor tensor{cut.name, cut.whole.dtype(), cut.whole.shape(), true, "", {}};
      for (int part = 0; part < cut.shards * cut.row_shards; ++part) {
        CheckpointPart entry{
            part,           cut.sharding,          cut.shards, part / cut.row_shards,
            cut.row_shards, part % cut.row_shards, 0};
        WEFT_ASSIGN_OR_RETURN(const VariableShard shard, ShardOf(tensor, entry));
        WEFT_ASSIGN_OR_RETURN(const Tensor local, SliceShard(cut.whole, shard));
        entry.checksum = Checksum({static_cast<const std::byte*>(local.raw_data()), local.bytes()});
        tensor.parts.push_back(entry);
        if (contents.size() <= static_cast<size_t>(part)) contents.emplace_back();
        contents[part].push_back({{cut.name, local.dtype(), local.shape(), 0}, local});
      }
      index.tensors.push_back(std::move(tensor));
    }
    for (size_t i = 0; i < contents.size(); ++i) {
      std::vector<SafetensorsEntry> entries;
      for (const auto& [entry, tensor] : contents[i]) entries.push_back(entry);
      WEFT_ASSIGN_OR_RETURN(const SafetensorsLayout layout, LayOutSafetensors(entries, {}));
      std::string text = layout.header;
      for (const SafetensorsEntry& entry : layout.tensors) {
        for (const auto& [other, tensor] : contents[i]) {
          if (other.name != entry.name) continue;
          text.append(static_cast<const char*>(tensor.raw_data()), tensor.bytes());
        }
      }
      const std::string name = absl::StrCat("rank-0000", i, ".safetensors");
      // As a worker has it, from the begin of a page on.
      WEFT_ASSIGN_OR_RETURN(
          const Tensor image,
          Tensor::Allocate(DType::kUint8, Shape({static_cast<int64_t>(text.size())})));
      std::memcpy(image.raw_data(), text.data(), text.size());
      WEFT_RETURN_IF_ERROR(files.WriteFileAtomically(
          absl::StrCat(folder, "/", name),
          std::string_view(static_cast<const char*>(image.raw_data()), text.size())));
      index.files.push_back({name, static_cast<int64_t>(text.size()), ChecksumOf(text)});
    }
    return index;
  }

  absl::Status Save(FileSystem& files, Folders& folders, int64_t step, int keep = 3) {
    CheckpointStore store(files, folders, root_);
    WEFT_ASSIGN_OR_RETURN(const std::string folder, store.Begin(step, 0x1234));
    WEFT_ASSIGN_OR_RETURN(const CheckpointIndex index,
                          WriteFiles(files, folder, step, Tensors(static_cast<float>(step))));
    WEFT_RETURN_IF_ERROR(store.Commit(folder, index));
    return store.Prune(keep);
  }
  absl::Status Save(int64_t step, int keep = 3) {
    return Save(RealFileSystem(), RealFolders(), step, keep);
  }

  static std::vector<std::string> NamesIn(const std::string& folder) {
    return RealFileSystem().ListDirectory(folder).value();
  }

  CheckpointStore Store() { return {RealFileSystem(), RealFolders(), root_}; }
  std::string PathOf(int64_t step) { return Store().PathOf(step); }

  // The step of the newest that is whole, all its tensors compared; -1 for none.
  int64_t NewestStep(std::vector<std::string>* notes = nullptr) {
    std::vector<std::string> own;
    CheckpointStore store = Store();
    auto newest = store.OpenNewest(notes != nullptr ? *notes : own);
    EXPECT_TRUE(newest.ok()) << newest.status();
    if (!newest.ok() || !newest->has_value()) return -1;
    const int64_t step = (*newest)->index().step;
    for (const Cut& cut : Tensors(static_cast<float>(step))) {
      const auto tensor = (*newest)->Read(cut.name);
      EXPECT_TRUE(tensor.ok()) << tensor.status();
      EXPECT_TRUE(BitwiseEqual(*tensor, cut.whole)) << cut.name;
    }
    return step;
  }

  std::string root_;
};

TEST_F(CheckpointTest, TensorsArePutTogetherFromTheirParts) {
  ASSERT_TRUE(Save(100).ok());
  EXPECT_EQ(NewestStep(), 100);
  const auto checkpoint = Checkpoint::Open(RealFileSystem(), PathOf(100));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->index().files.size(), 4u);
  EXPECT_EQ(checkpoint->index().job.flags.at("--lr").Text(), "0.1");
  EXPECT_EQ(checkpoint->index().loop.at("best"), 0.5);
  EXPECT_EQ(checkpoint->index().job.trained, (std::vector<std::string>{"w", "b"}));
  EXPECT_EQ(checkpoint->index().job.untrained.at("mask"), "holds -inf");
  const auto unknown = checkpoint->Read("nothing");
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.status().message()), HasSubstr("'nothing'"));
}

// Later states may be wrong: no resume finds them, and what had been set aside before gives way.
TEST_F(CheckpointTest, LaterOnesAreSetAside) {
  for (const int64_t step : {100, 200, 300}) ASSERT_TRUE(Save(step).ok());
  CheckpointStore store = Store();
  EXPECT_THAT(*store.SetAsideAfter(300), IsEmpty());
  EXPECT_THAT(*store.SetAsideAfter(150), ElementsAre(200, 300));
  EXPECT_EQ(NewestStep(), 100);
  EXPECT_THAT(*store.Steps(), ElementsAre(100));
  ASSERT_TRUE(Save(200).ok());
  EXPECT_EQ(NewestStep(), 200);
  EXPECT_THAT(*store.SetAsideAfter(100), ElementsAre(200));
  EXPECT_THAT(NamesIn(root_), UnorderedElementsAre("step-00000100", "step-00000200.suspect",
                                                   "step-00000300.suspect"));
}

TEST_F(CheckpointTest, TheIndexIsWhatItWas) {
  ASSERT_TRUE(Save(7).ok());
  const auto checkpoint = Checkpoint::Open(RealFileSystem(), PathOf(7));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const std::string text = *RealFileSystem().ReadFile(PathOf(7) + "/index.json");
  EXPECT_EQ(checkpoint->index().ToJson(), text);
  EXPECT_THAT(text, HasSubstr(R"("slice":{"axis":1,"blocks":3,"shards":2,"shard":1)"));
}

// The text with this instead, and with the checksum that goes with it.
std::string Changed(std::string text, const std::string& from, const std::string& to) {
  text.resize(text.rfind(",\n\"checksum\": "));
  EXPECT_NE(text.find(from), std::string::npos) << text;
  text = absl::StrReplaceAll(text, {{from, to}});
  return absl::StrFormat("%s,\n\"checksum\": \"%016x\"\n}\n", text, ChecksumOf(text));
}

TEST(CheckpointIndexTest, ValuesOfFlagsMayHaveCommas) {
  CheckpointIndex index;
  index.job.flags = {{"--lr", "0.1"},
                     {"--qat-skip", std::vector<std::string>{"fc,3*", "conv1"}},
                     {"--tie", std::vector<std::string>{"a=b"}}};
  const std::string text = index.ToJson();
  const auto read = CheckpointIndex::FromJson(text, "index.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->ToJson(), text);
  EXPECT_THAT(read->job.flags.at("--qat-skip").values, ElementsAre("fc,3*", "conv1"));
  EXPECT_FALSE(read->job.flags.at("--qat-skip").is_joined);
  EXPECT_THAT(text, HasSubstr(R"("flag_lists": {"--qat-skip":["fc,3*","conv1"]})"));

  // Of an earlier program, which wrote the text alone.
  const std::string list = R"("flag_lists": {"--qat-skip":["fc,3*","conv1"]},)";
  const auto older = CheckpointIndex::FromJson(Changed(text, list + "\n", ""), "index.json");
  ASSERT_TRUE(older.ok()) << older.status();
  EXPECT_THAT(older->job.flags.at("--qat-skip").values, ElementsAre("fc", "3*", "conv1"));
  EXPECT_TRUE(older->job.flags.at("--qat-skip").is_joined);
  EXPECT_THAT(older->job.flags.at("--lr").values, ElementsAre("0.1"));

  for (const char* const bad : {R"({"--qat-skip":["fc,3*"]})", R"({"--qat-skip":"fc,3*,conv1"})",
                                R"({"--qat-skip":["fc,3*",1]})", R"({"--lora":["rank=2"]})"}) {
    const std::string good = R"({"--qat-skip":["fc,3*","conv1"]})";
    const auto refused = CheckpointIndex::FromJson(Changed(text, good, bad), "index.json");
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kDataLoss) << bad;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("is not what its text has"));
  }
}

TEST(CheckpointIndexTest, KnowsWhatFilesOfFlagsHold) {
  CheckpointIndex index;
  index.job.flags = {{"--adapters-in", "a.safetensors"}, {"--lr", "0.1"}};
  index.job.flags["--adapters-in"].content = 0xabc;
  const std::string text = index.ToJson();
  const auto read = CheckpointIndex::FromJson(text, "index.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->ToJson(), text);
  EXPECT_EQ(read->job.flags.at("--adapters-in").content, 0xabcu);
  EXPECT_EQ(read->job.flags.at("--lr").content, std::nullopt);
  const std::string files = R"("flag_files": {"--adapters-in":"0000000000000abc"})";
  EXPECT_THAT(text, HasSubstr(files));
  const auto older = CheckpointIndex::FromJson(Changed(text, files + ",\n", ""), "index.json");
  ASSERT_TRUE(older.ok()) << older.status();
  EXPECT_EQ(older->job.flags.at("--adapters-in").content, std::nullopt);
  for (const char* const bad : {R"({"--adapters-in":"abc"})", R"({"--lora":"0000000000000abc"})"}) {
    const std::string good = R"({"--adapters-in":"0000000000000abc"})";
    EXPECT_EQ(CheckpointIndex::FromJson(Changed(text, good, bad), "index.json").status().code(),
              absl::StatusCode::kDataLoss)
        << bad;
  }
}

TEST_F(CheckpointTest, OldOnesArePruned) {
  for (const int64_t step : {10, 20, 30, 40}) ASSERT_TRUE(Save(step, 2).ok());
  EXPECT_THAT(*Store().Steps(), ElementsAre(30, 40));
  EXPECT_THAT(NamesIn(root_), ElementsAre("step-00000030", "step-00000040"));
}

TEST_F(CheckpointTest, NoneWhereNoneIs) {
  EXPECT_EQ(NewestStep(), -1);
  std::filesystem::remove_all(root_);
  EXPECT_THAT(*Store().Steps(), ElementsAre());
}

// Every byte of every file.
TEST_F(CheckpointTest, EveryFlippedBitIsFound) {
  ASSERT_TRUE(Save(1).ok());
  RandomSequence random(RandomKey(5, "flips"));
  int flips = 0;
  for (const std::string& name : NamesIn(PathOf(1))) {
    const std::string path = absl::StrCat(PathOf(1), "/", name);
    const std::string whole = *RealFileSystem().ReadFile(path);
    for (size_t at = 0; at < whole.size(); ++at, ++flips) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << random.Below(8)));
      ASSERT_TRUE(RealFileSystem().OpenEmpty(path).value()->Append(damaged).ok());
      const auto checkpoint = Checkpoint::Open(RealFileSystem(), PathOf(1));
      const absl::Status status = checkpoint.ok() ? checkpoint->Verify() : checkpoint.status();
      ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << name << " byte " << at;
      EXPECT_THAT(std::string(status.message()), HasSubstr(name)) << "byte " << at;
    }
    ASSERT_TRUE(RealFileSystem().WriteFileAtomically(path, whole).ok());
  }
  EXPECT_GT(flips, 3000);
  EXPECT_EQ(NewestStep(), 1);
}

TEST_F(CheckpointTest, DamageNamesFileAndTensor) {
  ASSERT_TRUE(Save(1).ok());
  const std::string path = PathOf(1) + "/rank-00000.safetensors";
  std::string text = *RealFileSystem().ReadFile(path);
  text.back() = static_cast<char>(text.back() ^ 1);
  ASSERT_TRUE(RealFileSystem().WriteFileAtomically(path, text).ok());
  const auto checkpoint = Checkpoint::Open(RealFileSystem(), PathOf(1));
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_THAT(std::string(checkpoint->Verify().message()),
              AllOf(HasSubstr("rank-00000.safetensors"), HasSubstr("contents of tensor 'uneven'")));
}

TEST_F(CheckpointTest, ADamagedOneIsSetAsideForTheOneBefore) {
  for (const int64_t step : {1, 2, 3}) ASSERT_TRUE(Save(step).ok());
  std::filesystem::resize_file(PathOf(3) + "/rank-00001.safetensors", 100);
  std::filesystem::remove(PathOf(2) + "/rank-00000.safetensors");
  std::vector<std::string> notes;
  EXPECT_EQ(NewestStep(&notes), 1);
  EXPECT_THAT(notes, ElementsAre(AllOf(HasSubstr("step 3"), HasSubstr("it has 100 bytes")),
                                 AllOf(HasSubstr("step 2"), HasSubstr("it is missing"))));
  EXPECT_THAT(*Store().Steps(), ElementsAre(1));
  ASSERT_TRUE(Save(3).ok());
  EXPECT_EQ(NewestStep(), 3);
}

TEST_F(CheckpointTest, AnIndexThatLiesIsRefused) {
  ASSERT_TRUE(Save(1).ok());
  const auto whole = Checkpoint::Open(RealFileSystem(), PathOf(1));
  ASSERT_TRUE(whole.ok());
  const auto error = [&](const std::function<void(CheckpointIndex&)>& change) {
    CheckpointIndex index = whole->index();
    change(index);
    // With its checksum right.
    const std::string path = PathOf(1) + "/index.json";
    EXPECT_TRUE(RealFileSystem().WriteFileAtomically(path, index.ToJson()).ok());
    const auto read = Checkpoint::Open(RealFileSystem(), PathOf(1));
    const absl::Status status = read.ok() ? read->Verify() : read.status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(error([](auto& index) { index.files[0].name = "../x"; }), HasSubstr("'../x'"));
  EXPECT_THAT(error([](auto& index) { index.tensors[0].parts[0].file = 9; }),
              HasSubstr("file 9 of 4"));
  EXPECT_THAT(error([](auto& index) { index.tensors[1].parts.pop_back(); }),
              HasSubstr("its parts have 12 elements of 24"));
  EXPECT_THAT(error([](auto& index) { index.tensors[1].parts[1].shard = 0; }),
              HasSubstr("do not go together"));
  EXPECT_THAT(error([](auto& index) { index.tensors[1].parts[0].sharding.axis = 7; }),
              HasSubstr("axis 7"));
  EXPECT_THAT(error([](auto& index) { index.tensors[0].shape = Shape({kMaxDim}); }),
              HasSubstr("'bias'"));
  EXPECT_THAT(error([](auto& index) { index.tensors[0].dtype = DType::kInt32; }),
              AllOf(HasSubstr("'bias' is float32[3]"), HasSubstr("int32[3]")));
  EXPECT_THAT(error([](auto& index) { index.tensors[0].name = "other"; }),
              HasSubstr("'other' is missing"));
  EXPECT_THAT(error([](auto& index) { index.files[0].checksum ^= 1; }),
              HasSubstr("its header has changed"));
}

TEST_F(CheckpointTest, ANewerFormatSaysSo) {
  std::string text = CheckpointIndex().ToJson();
  const std::string key = "\"version\": 1,";
  text.replace(text.find(key), key.size(), "\"version\": 2,");
  const std::string body = text.substr(0, text.rfind(",\n\"checksum\""));
  text = absl::StrCat(body, ",\n\"checksum\": \"", absl::Hex(ChecksumOf(body), absl::kZeroPad16),
                      "\"\n}\n");
  const auto index = CheckpointIndex::FromJson(text, "i");
  EXPECT_EQ(index.status().code(), absl::StatusCode::kUnimplemented) << index.status();
  EXPECT_THAT(std::string(index.status().message()), HasSubstr("version 2, this program reads 1"));
}

// A process that is killed at any change to the disk, while it writes the third and prunes the
// first: afterwards the second or the third is there, whole, and so is the next one.
TEST_F(CheckpointTest, WhateverAKilledProcessLeavesTheLastGoodOneIsThere) {
  int kills = 0;
  for (bool finished = false; !finished; ++kills) {
    TearDown();
    SetUp();
    ASSERT_TRUE(Save(1).ok());
    ASSERT_TRUE(Save(2).ok());
    testing::FaultyDisk disk;
    disk.DieAt(kills);
    finished = Save(disk.files(), disk.folders(), 3, /*keep=*/2).ok();
    ASSERT_TRUE(Store().CleanUp().ok());
    EXPECT_THAT(NewestStep(), AnyOf(2, 3)) << "killed at change " << kills;
    for (const std::string& name : NamesIn(root_)) {
      EXPECT_THAT(name, HasSubstr("step-0000000")) << "killed at change " << kills;
    }
    ASSERT_TRUE(Save(4).ok());
    EXPECT_EQ(NewestStep(), 4);
  }
  EXPECT_GT(kills, 20);
}

// One write, flush, rename or removal fails, and the next one does not: the disk was full for a
// moment, or a sector bad.
TEST_F(CheckpointTest, AnErrorAtAnyChangeLeavesTheLastGoodOne) {
  const std::vector<int> errors = {ENOSPC, EIO, EROFS};
  int change = 0;
  for (bool untouched = false; !untouched; ++change) {
    TearDown();
    SetUp();
    ASSERT_TRUE(Save(1).ok());
    ASSERT_TRUE(Save(2).ok());
    testing::FaultyDisk disk;
    disk.FailOnce(change, errors[static_cast<size_t>(change) % errors.size()]);
    const absl::Status saved = Save(disk.files(), disk.folders(), 3, /*keep=*/2);
    untouched = disk.changes() <= change;
    EXPECT_EQ(saved.ok(), untouched) << "change " << change << ": " << saved;
    EXPECT_THAT(NewestStep(), AnyOf(2, 3)) << "change " << change;
    ASSERT_TRUE(Store().CleanUp().ok());
    ASSERT_TRUE(Save(4).ok());
    EXPECT_EQ(NewestStep(), 4) << "change " << change;
  }
  EXPECT_GT(change, 20);
}

// A process that saves and prunes on the machine's own file system, killed when it is about to make
// its k-th system call, for every k until it gets to its end. Returns whether it got there.
bool SavesUntilCall(int calls, const std::function<absl::Status()>& save) {
  const pid_t child = fork();
  if (child == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
    _exit(save().ok() ? 0 : 1);
  }
  int status = 0;
  bool ended = waitpid(child, &status, 0) != child || !WIFSTOPPED(status);
  // Twice a call: before it, and after it.
  for (int stop = 0; !ended && stop <= 2 * calls; ++stop) {
    ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    ended = waitpid(child, &status, 0) != child || WIFEXITED(status) || WIFSIGNALED(status);
  }
  if (ended) return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return false;
}

// Whether this process may trace a child: some containers forbid it.
bool CanTrace() {
  const pid_t child = fork();
  if (child == 0) _exit(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0 ? 0 : 1);
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST_F(CheckpointTest, AProcessKilledAtAnySystemCallOfASaveLeavesTheLastGoodOne) {
  if (!CanTrace()) GTEST_SKIP() << "this machine does not let a process trace its child";
  ASSERT_TRUE(Save(1).ok());
  ASSERT_TRUE(Save(2).ok());
  const std::string before = root_ + ".before";
  std::filesystem::copy(root_, before, std::filesystem::copy_options::recursive);
  int calls = 0;
  for (bool finished = false; !finished; ++calls) {
    ASSERT_LT(calls, 5000) << "the save fails without being killed";
    std::filesystem::remove_all(root_);
    std::filesystem::copy(before, root_, std::filesystem::copy_options::recursive);
    finished = SavesUntilCall(calls, [&] { return Save(3, /*keep=*/2); });
    ASSERT_TRUE(Store().CleanUp().ok()) << "killed at call " << calls;
    std::vector<std::string> notes;
    EXPECT_THAT(NewestStep(&notes), AnyOf(2, 3)) << "killed at call " << calls;
    EXPECT_THAT(notes, ElementsAre()) << "a checkpoint that was named is whole";
    if (finished) {
      EXPECT_EQ(NewestStep(), 3);
    }
    if (!finished && calls % 16 != 0) continue;
    ASSERT_TRUE(Save(4).ok());
    EXPECT_EQ(NewestStep(), 4) << "killed at call " << calls;
  }
  std::filesystem::remove_all(before);
  EXPECT_GT(calls, 60);
}

// The same where a file is so large that it goes to the disk past the cache: what the process held
// of it, and on the disk, is half a file at most calls.
TEST_F(CheckpointTest, AProcessKilledWhileItWritesALargeFileLeavesTheLastGoodOne) {
  if (!CanTrace()) GTEST_SKIP() << "this machine does not let a process trace its child";
  const std::vector<Cut> large = {{"large", Numbers(Shape({(3 << 20) + 5}), 0)}};
  const auto save = [&](int64_t step) -> absl::Status {
    CheckpointStore store = Store();
    WEFT_ASSIGN_OR_RETURN(const std::string folder, store.Begin(step, 0x1234));
    WEFT_ASSIGN_OR_RETURN(const CheckpointIndex index,
                          WriteFiles(RealFileSystem(), folder, step, large));
    return store.Commit(folder, index);
  };
  ASSERT_TRUE(save(1).ok());
  int calls = 0;
  for (bool finished = false; !finished; ++calls) {
    ASSERT_LT(calls, 2000) << "the save fails without being killed";
    finished = SavesUntilCall(calls, [&] { return save(2); });
    ASSERT_TRUE(Store().CleanUp().ok()) << "killed at call " << calls;
    CheckpointStore store = Store();
    std::vector<std::string> notes;
    const auto newest = store.OpenNewest(notes);
    ASSERT_TRUE(newest.ok() && newest->has_value()) << "killed at call " << calls;
    EXPECT_THAT((*newest)->index().step, AnyOf(1, 2)) << "killed at call " << calls;
    EXPECT_THAT(notes, ElementsAre()) << "a checkpoint that was named is whole";
    if (finished) {
      EXPECT_EQ((*newest)->index().step, 2);
    }
    const auto tensor = (*newest)->Read("large");
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_TRUE(BitwiseEqual(*tensor, large[0].whole)) << "killed at call " << calls;
    std::filesystem::remove_all(PathOf(2));
  }
  EXPECT_GT(calls, 30);
}

// Every flipped bit of a file that several threads verify, in pieces: at their borders, and at
// those of its tensors.
TEST_F(CheckpointTest, DamageOfALargeFileNamesTheTensor) {
  constexpr int64_t kElements = (int64_t{5} << 20) + 3;
  const std::vector<Cut> cuts = {{"first", Numbers(Shape({kElements}), 0)},
                                 {"none", Numbers(Shape({0}), 0)},
                                 {"second", Numbers(Shape({kElements}), 1)}};
  CheckpointStore store = Store();
  const std::string folder = *store.Begin(1, 1);
  const auto index = WriteFiles(RealFileSystem(), folder, 1, cuts);
  ASSERT_TRUE(index.ok()) << index.status();
  ASSERT_TRUE(store.Commit(folder, *index).ok());
  const std::string path = PathOf(1) + "/rank-00000.safetensors";
  const int64_t size = index->files[0].bytes, middle = size - 4 * kElements;
  const auto message = [&](int64_t at) {
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    char byte = 0;
    EXPECT_EQ(pread(file, &byte, 1, at), 1);
    byte = static_cast<char>(byte ^ 4);
    EXPECT_EQ(pwrite(file, &byte, 1, at), 1);
    const auto checkpoint = Checkpoint::Open(RealFileSystem(), PathOf(1));
    const absl::Status status = checkpoint.ok() ? checkpoint->Verify() : checkpoint.status();
    byte = static_cast<char>(byte ^ 4);
    EXPECT_EQ(pwrite(file, &byte, 1, at), 1);
    close(file);
    return std::string(status.message());
  };
  const int64_t piece = int64_t{16} << 20, begin = size - 8 * kElements;
  for (const int64_t at : {begin, piece - 1, piece, middle - 1}) {
    EXPECT_THAT(message(at), HasSubstr("contents of tensor 'first' have changed")) << at;
  }
  for (const int64_t at : {middle, 2 * piece - 1, 2 * piece, size - 1}) {
    EXPECT_THAT(message(at), HasSubstr("contents of tensor 'second' have changed")) << at;
  }
  EXPECT_THAT(message(begin - 1), HasSubstr("is damaged"));
  const auto whole = Checkpoint::Open(RealFileSystem(), PathOf(1));
  ASSERT_TRUE(whole.ok() && whole->Verify().ok());
  for (const Cut& cut : cuts) EXPECT_TRUE(BitwiseEqual(*whole->Read(cut.name), cut.whole));
}

TEST_F(CheckpointTest, AFullDiskLeavesTheOnesThatAreThere) {
  ASSERT_TRUE(Save(1).ok());
  for (const int error : {ENOSPC, EIO, EROFS}) {
    testing::FaultyDisk disk;
    disk.FailWith(error);
    EXPECT_FALSE(Save(disk.files(), disk.folders(), 2).ok());
    EXPECT_EQ(NewestStep(), 1);
  }
}

TEST_F(CheckpointTest, FilesThatAreNotHereAreNotCommitted) {
  CheckpointStore store = Store();
  const std::string folder = *store.Begin(5, 1);
  auto index = WriteFiles(RealFileSystem(), folder, 5, Tensors(5));
  ASSERT_TRUE(index.ok());
  std::filesystem::remove(folder + "/rank-00002.safetensors");
  const absl::Status status = store.Commit(folder, *index);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("rank-00002.safetensors"), HasSubstr("hosts of all workers share")));
  EXPECT_EQ(NewestStep(), -1);
}

}  // namespace
}  // namespace weft
