"""A module for Lightning that keeps what it was made with."""

from __future__ import annotations

from typing import Any

import torch
from lightning.pytorch import LightningModule

from genuine import network  # of the tests


class Fitted(LightningModule):
    def __init__(self, lr: float, settings: Any = None) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.lr, self.net = lr, network()

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        inputs, wanted = batch
        loss: torch.Tensor = (self.net(inputs) - wanted).square().mean()
        self.log("loss", loss, on_epoch=True)
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 2)}
