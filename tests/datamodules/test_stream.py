"""The stream of global batches: endless, identical with workers, and resumed after the last consumed batch."""

import itertools

import pytest
import pytorch_lightning as pl
import torch

from contrastive_encoders.core import InputError
from contrastive_encoders.datamodules.sampling.example_order import ExampleOrder
from contrastive_encoders.datamodules.sampling.stream import BatchStream, EpochBatches
from tests.variations import slow_after


def build(pass_index, examples):
    return pass_index, examples.tolist()


def stream(examples=23, batch_size=4, *, make=build, passes=1, seed=1, rank=0, world=1, drop_last=True, **kwargs):
    order = ExampleOrder(examples, batch_size, seed=seed, rank=rank, world=world, drop_last=drop_last)
    return BatchStream(EpochBatches(make, order, passes), **kwargs)


def take(batches, count):
    """Take batches as Lightning does: iter() at the start of each epoch, never more than len() batches."""
    taken = []
    while len(taken) < count:
        taken += itertools.islice(iter(batches), min(len(batches), count - len(taken)))
    return taken


def test_iterators_that_nobody_reads_do_not_count():
    batches = stream()
    iter(batches)
    iter(batches)
    assert take(batches, 10) == take(stream(), 10)


def test_an_epoch_broken_off_is_followed_by_the_next():
    batches = stream()
    assert [next(iter(batches))[0] for _ in range(3)] == [0, 1, 2]  # limit_train_batches=1


@pytest.mark.rotates
@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("at", slow_after(3, [0, 5, 12, 3, 10]))
def test_a_resumed_stream_goes_on_as_the_uninterrupted_one(at, workers, passes):
    uninterrupted = take(stream(passes=passes), 40)
    first = stream(num_workers=workers, passes=passes)
    assert take(first, at) == uninterrupted[:at]
    second = stream(num_workers=workers, passes=passes)
    second.load_state_dict(first.state_dict())
    rest = [
        *itertools.islice(iter(second), len(second) - at % len(second)),
        *take(second, len(second)),
    ]
    assert rest == uninterrupted[at : at + len(rest)]


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_share_the_batches_of_one_process_and_its_state(world):
    single = stream(examples=30, batch_size=6)
    ranks = [stream(examples=30, batch_size=6, rank=rank, world=world) for rank in range(world)]
    for whole, *shares in zip(take(single, 8), *(take(rank, 8) for rank in ranks), strict=True):
        assert sorted(whole[1]) == sorted(example for _, examples in shares for example in examples)
    assert all(rank.state_dict() == single.state_dict() for rank in ranks)


def test_other_data_is_refused_on_resume():
    state = stream().state_dict()
    for other in (stream(seed=2), stream(examples=24), stream(batch_size=2), stream(passes=2)):
        with pytest.raises(InputError) as error:
            other.load_state_dict(state)
        assert error.value.key == "resume"


def test_changed_data_of_the_same_size_is_refused_on_resume():
    state = stream(data_id="a").state_dict()
    stream(data_id="a").load_state_dict(state)
    with pytest.raises(InputError) as error:
        stream(data_id="b").load_state_dict(state)
    assert (error.value.location, error.value.value) == ("data", "b")
    del state["data_id"]  # written before it was kept
    stream(data_id="b").load_state_dict(state)


def build_nothing(pass_index, examples):
    raise InputError(key="data.path", value="faq.csv", expected="a row\nwith a text", hint="Remove\nthe row.")


@pytest.mark.parametrize("workers", [0, 2])
def test_an_input_error_keeps_its_fields_and_lines(workers):
    with pytest.raises(InputError) as error:
        next(iter(stream(make=build_nothing, num_workers=workers)))
    assert str(error.value).count("\n") == 2
    assert (error.value.key, error.value.value) == ("data.path", "faq.csv")
    assert (error.value.expected, error.value.hint) == ("a row\nwith a text", "Remove\nthe row.")


def test_training_draws_are_not_disturbed():
    torch.manual_seed(0)
    expected = torch.rand(2)
    torch.manual_seed(0)
    next(iter(stream()))
    assert torch.equal(torch.rand(2), expected)


class Recorder(pl.LightningModule):
    def __init__(self, save_at=None, path=None):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.seen, self.save_at, self.path = [], save_at, path

    def training_step(self, batch, batch_idx):
        self.seen.append(batch)
        return self.weight.sum()

    def on_train_batch_end(self, *_):
        if self.trainer.global_step == self.save_at:
            self.trainer.save_checkpoint(self.path)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize("limit", [{"max_steps": 15, "max_epochs": -1}, {"max_epochs": 3}])
@pytest.mark.parametrize("at", [3, 5, 9, 10])
def test_lightning_resumes_at_the_batch_where_it_stopped(at, limit, tmp_path):
    quiet = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    quiet |= {"enable_model_summary": False, "barebones": False, "default_root_dir": tmp_path, **limit}
    whole = Recorder(at, tmp_path / "at.ckpt")
    pl.Trainer(**quiet).fit(whole, stream())
    assert len(whole.seen) == 15
    again = Recorder()
    pl.Trainer(**quiet).fit(again, stream(), ckpt_path=tmp_path / "at.ckpt")
    assert again.seen == whole.seen[at:]
